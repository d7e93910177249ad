"""Stanford Dogs and Stanford Cars as they lie on disk; lists in MATLAB files, read by SciPy."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Box, Record, Records
from vitrail.data.sources.listing import find_root, list_pictures, list_subfolders, make_relative
from vitrail.errors import DataError
from vitrail.rng import Key


@SOURCES.register("stanford-dogs")
def stanford_dogs(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """`Images/nXXXX-Breed/*.jpg`, boxes from `Annotation`, splits from `train_list.mat`."""
    root = find_root(path, "Images")
    if root is None:
        raise DataError("there is no folder Images here", where=str(path))
    folders = list_subfolders(root / "Images")
    names = {folder.name: folder.name.partition("-")[2] or folder.name for folder in folders}
    if len(set(names.values())) < len(names):
        names = {name: name for name in names}
    splits = _dog_splits(root)
    rows = []
    for folder in folders:
        for image in list_pictures(folder):
            name = make_relative(image, root / "Images")
            box = _dog_box(root / "Annotation" / folder.name / image.stem)
            rows.append(Record(name, image, names[folder.name], split=splits.get(name), box=box))
    return Records(rows, tuple(names.values()))


@SOURCES.register("stanford-cars")
def stanford_cars(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """`cars_train`, `cars_test` and the devkit's annotations; a test part only with its labels."""
    root = find_root(path, "cars_train")
    kit = None if root is None else _first(root / "devkit", root / "car_devkit" / "devkit", root)
    if root is None or kit is None or not (kit / "cars_train_annos.mat").is_file():
        raise DataError("there is no cars_train with devkit/cars_train_annos.mat", where=str(path))
    meta = (
        _read_mat(kit / "cars_meta.mat", "class_names") if (kit / "cars_meta.mat").is_file() else []
    )
    classes = tuple(str(name) for name in np.atleast_1d(np.asarray(meta, dtype=object)))
    rows = _cars(root, "cars_train", kit / "cars_train_annos.mat", "train", classes)
    name = "cars_test_annos_withlabels.mat"
    test = next((p for p in (kit / name, root / name) if p.is_file()), None)
    if test is not None:
        rows += _cars(root, "cars_test", test, "test", classes)
    return Records(rows, classes or None)


def _first(*folders: Path) -> Path | None:
    return next((folder for folder in folders if folder.is_dir()), None)


def _read_mat(path: Path, name: str) -> Any:
    """One variable of a MATLAB file as plain Python values."""
    from scipy.io import loadmat

    try:
        return loadmat(path, simplify_cells=True, variable_names=[name])[name]
    except KeyError:
        raise DataError(f"holds no variable {name!r}", where=str(path)) from None
    except Exception as err:  # a damaged MATLAB file fails in many ways
        raise DataError(f"this MATLAB file cannot be read ({err})", where=str(path)) from err


def _dog_splits(root: Path) -> dict[str, str]:
    splits: dict[str, str] = {}
    for split in ("train", "test"):
        name = f"{split}_list.mat"
        path = next((p for p in (root / name, root / "lists" / name) if p.is_file()), None)
        if path is not None:
            for file in np.atleast_1d(np.asarray(_read_mat(path, "file_list"), dtype=object)):
                splits[str(file)] = split
    return splits


def _dog_box(path: Path) -> Box | None:
    """The first box of a Pascal VOC annotation; None where there is none or it is damaged."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
            return None
        box = ET.fromstring(text).find(".//bndbox")
        cells = [] if box is None else [box.findtext(k) for k in ("xmin", "ymin", "xmax", "ymax")]
        x0, y0, x1, y1 = (float(cell or "nan") for cell in cells)
    except (OSError, ET.ParseError, ValueError):
        return None
    return (x0, y0, x1, y1) if x0 <= x1 and y0 <= y1 else None


def _cars(
    root: Path, folder: str, path: Path, split: str, classes: tuple[str, ...]
) -> list[Record]:
    """One part of the cars; a class number is an index from 1 into the names."""
    rows = []
    annotations = _read_mat(path, "annotations")
    for item in [annotations] if isinstance(annotations, dict) else annotations:
        try:
            file, number = str(item["fname"]), int(item["class"])
            x0, y0, x1, y1 = (float(item[k]) for k in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"))
        except (KeyError, TypeError, ValueError) as err:
            raise DataError(
                f"an annotation lacks a field ({err})",
                where=str(path),
                hint="The test part needs the file with labels.",
            ) from err
        if classes and not 1 <= number <= len(classes):
            raise DataError(f"{file} has class {number} of {len(classes)}", where=str(path))
        label = number - 1 if classes else number
        image = root / folder / Path(file).name
        rows.append(
            Record(make_relative(image, root), image, label, split=split, box=(x0, y0, x1, y1))
        )
    return rows
