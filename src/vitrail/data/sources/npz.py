"""NumPy archives of images and labels, read without pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import UnreadableError, to_bytes
from vitrail.data.image_set import Array
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Record, Records
from vitrail.data.shared_memory import get_available_memory
from vitrail.data.sources.csv_tables import as_label, as_word
from vitrail.data.sources.medmnist_classes import find_medmnist_classes
from vitrail.errors import DataError, suggest_name
from vitrail.rng import Key

# (images, labels, split): the first group whose images are there is read as a whole.
_GROUPS: tuple[tuple[tuple[str, str, str | None], ...], ...] = (
    (("x_train", "y_train", "train"), ("x_test", "y_test", "test")),
    (
        ("train_images", "train_labels", "train"),
        ("val_images", "val_labels", "val"),
        ("test_images", "test_labels", "test"),
    ),
    (("x", "y", None),),
)


@SOURCES.register("npz")
def npz(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Arrays `x_train, y_train, x_test, y_test`, or `x, y`, with `classes`, `site`, ... beside.

    Pixels are uint8; floats must lie in [0, 1] and are multiplied by 255; wider integers up to
    255 are taken as they are, larger ones as `data.bits` says. The files of MedMNIST are read as
    they lie on disk, with the names of their classes.
    """
    arrays = _read(path)
    rows: list[Record] = []
    for images, labels, split in _parts(arrays, data, path):
        rows += _rows(arrays, images, labels, split, data, path)
    classes = arrays.get("classes")
    names = (
        find_medmnist_classes(path, {row.label for row in rows if isinstance(row.label, int)})
        if classes is None
        else tuple(str(name) for name in classes.reshape(-1))
    )
    return Records(rows, names, files=(path,))


def _read(path: Path) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as archive:
            length = sum(item.file_size for item in archive.infolist())
        if length > get_available_memory():
            raise DataError(
                f"its arrays need {length / 2**30:.1f} GiB, more than there is memory",
                where=str(path),
            )
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as err:
        reason = "it holds Python objects" if "pickle" in str(err).casefold() else str(err)
        raise DataError(
            f"this .npz file cannot be read ({reason})",
            where=str(path),
            hint="Save plain arrays with numpy.savez.",
        ) from err


def _parts(arrays: dict[str, Array], data: Data, path: Path) -> list[tuple[str, str, str | None]]:
    if data.image in arrays and data.label in arrays:
        return [(data.image, data.label, None)]
    for group in _GROUPS:
        parts = [part for part in group if part[0] in arrays]
        for images, labels, _ in parts:
            if labels not in arrays:
                raise DataError(
                    f"there is an array {images!r} but no {labels!r}",
                    where=str(path),
                    hint=suggest_name(labels, arrays),
                )
        if parts:
            return parts
    raise DataError(
        "there are no arrays x and y, or x_train and y_train",
        where=str(path),
        hint=f"Name them in data.image and data.label. Arrays here: {', '.join(sorted(arrays))}",
    )


def _rows(
    arrays: dict[str, Array], images: str, labels: str, split: str | None, data: Data, path: Path
) -> list[Record]:
    pixels = _pixels(arrays[images], images, path)
    truth = _column(arrays[labels], labels, len(pixels), path)
    ending = f"_{split}" if images.startswith("x_") and split else ""

    def facts(wanted: str | None, usual: str) -> list[Any]:
        name = wanted if wanted is not None else usual
        if wanted is not None and f"{name}{ending}" not in arrays:
            raise DataError(
                f"there is no array {name + ending!r}",
                where=str(path),
                hint=suggest_name(name, arrays),
            )
        array = arrays.get(f"{name}{ending}")
        if array is None:
            return [None] * len(pixels)
        return _column(array, name, len(pixels), path)

    sites, patients = facts(data.site, "site"), facts(data.patient, "patient")
    splits = facts(data.split, "split") if split is None else [split] * len(pixels)
    boxes = arrays.get(f"{data.box or 'box'}{ending}")
    if boxes is not None and boxes.shape != (len(pixels), 4):
        raise DataError(f"boxes have the shape {boxes.shape}, not (N, 4)", where=str(path))
    return [
        Record(
            f"{images}[{i}]",
            pixels[i],
            as_label(truth[i]),
            as_word(sites[i]),
            as_word(patients[i]),
            as_word(splits[i]),
            None if boxes is None else _box(boxes[i]),
        )
        for i in range(len(pixels))
    ]


def _box(row: Array) -> tuple[float, float, float, float] | None:
    x0, y0, x1, y1 = (float(v) for v in row)
    return (x0, y0, x1, y1) if np.isfinite([x0, y0, x1, y1]).all() else None


def _pixels(array: Array, name: str, path: Path) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16]:
    shape = array.shape
    if array.ndim not in (3, 4) or (array.ndim == 4 and shape[3] not in (1, 3)):
        first = array.ndim == 4 and shape[1] in (1, 3)
        raise DataError(
            f"{name} has the shape {shape}, not [N, H, W] or [N, H, W, 1 or 3]",
            where=str(path),
            hint="Put the channels last: x.transpose(0, 2, 3, 1)." if first else "",
        )
    try:
        if array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() <= 255:
            return array.astype(np.uint8, copy=False)
        whole = array.dtype.kind in "iu" and array.size
        if whole and array.min() >= 0 and array.max() <= 65535:
            return array.astype(np.uint16, copy=False)  # how deep it is, all images decide
        return to_bytes(array)
    except UnreadableError as err:
        raise DataError(f"{name} {err}", where=str(path), hint="Scale it to 0..255.") from err


def _column(array: Array, name: str, count: int, path: Path) -> list[Any]:
    """A column of one value per image, also where it was saved as [N, 1]."""
    flat = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
    if flat.shape != (count,):
        raise DataError(
            f"{name} has the shape {array.shape}, but there are {count} images",
            where=str(path),
            hint="One value per image is needed.",
        )
    values: list[Any] = flat.tolist()
    return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values]
