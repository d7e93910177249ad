"""Which source and which columns an unknown file or folder calls for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.config.schema import Data
from vitrail.data.sources.class_folders import (
    Layout,
    find_site_folders,
    find_split_folders,
    is_picture,
)
from vitrail.data.sources.csv_tables import TABLE_SUFFIXES, read_csv
from vitrail.data.sources.dicom import is_dicom
from vitrail.data.sources.listing import find_root, list_loose_files, list_subfolders, walk
from vitrail.data.sources.manifest import PATH_NAMES
from vitrail.errors import DataError

_LABEL_NAMES = ("label", "labels", "class", "target", "diagnosis", "category", "finding", "y")
_LABEL_NAMES_MORE = ("finding labels", "class_name", "species", "breed", "dx")

# The files that give each layout away; the first layout whose files are all there is meant.
_LAYOUTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cifar10", ("data_batch_1.bin",)),
    ("cifar10", ("data_batch_1", "batches.meta")),
    ("cifar100", ("train.bin", "test.bin")),
    ("cifar100", ("train", "test", "meta")),
    ("tiny-imagenet", ("train", "val/val_annotations.txt")),
    ("cub200", ("images.txt", "image_class_labels.txt")),
    ("stanford-cars", ("cars_train",)),
    ("stanford-dogs", ("Images", "Annotation")),
    ("celeba", ("list_attr_celeba.txt",)),
    ("celeba", ("list_attr_celeba.csv",)),
    ("hugging-face", ("dataset_dict.json",)),
    ("hugging-face", ("dataset_info.json", "state.json")),
)


def guess_data(path: Path) -> Data:
    """A `[data]` section for what lies at `path`; an error where two readings are possible."""
    if not path.exists():
        raise DataError(f"{str(path)!r} does not exist", where="PATH")
    return _guess_file(path) if path.is_file() else _guess_folder(path)


def _guess_file(path: Path) -> Data:
    suffix = path.suffix.casefold()
    if suffix == ".npz":
        return Data(source="npz", path=str(path))
    if suffix == ".json":
        return Data(source="femnist", path=str(path))
    if suffix in TABLE_SUFFIXES:
        return _guess_table(path)
    raise DataError(
        f"a {suffix or 'nameless'} file is none of .csv, .parquet, .npz, .json",
        where=str(path),
        hint="Give a folder with one folder per class, or a manifest.",
    )


def _guess_table(path: Path) -> Data:
    """A manifest, or a Parquet file with images inside."""
    names = _columns(path)
    encoded = _encoded_column(path)
    image = encoded or _first(names, PATH_NAMES)
    label = _first(names, _LABEL_NAMES + _LABEL_NAMES_MORE)
    if image is None or label is None:
        what = "images" if image is None else "labels"
        raise DataError(
            f"no column looks like {what}",
            where=str(path),
            hint=f"Name it in data.image or data.label. Columns: {', '.join(names)}",
        )
    source = "parquet" if encoded else "manifest"
    if not encoded and _holds_dicom(path, image):
        source = "dicom"
    return Data(source=source, path=str(path), image=image, label=label)


def _columns(path: Path) -> list[str]:
    if path.suffix.casefold() not in (".parquet", ".pq"):
        return list(read_csv(path))
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as err:
        raise DataError(f"this Parquet file cannot be read ({err})", where=str(path)) from err


def _encoded_column(path: Path) -> str | None:
    if path.suffix.casefold() not in (".parquet", ".pq"):
        return None
    for field in pq.read_schema(path):
        kind = field.type
        struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        if struct or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return str(field.name)
    return None


def _first(names: list[str], usual: tuple[str, ...]) -> str | None:
    folded = {name.casefold(): name for name in reversed(names)}
    return next((folded[name] for name in usual if name in folded), None)


def _holds_dicom(path: Path, image: str) -> bool:
    if path.suffix.casefold() not in (".csv", ".tsv"):
        return False
    files = [value for value in read_csv(path)[image][:5] if value]
    return bool(files) and all(is_dicom(path.parent / file) for file in files)


def _guess_folder(path: Path) -> Data:
    for source, marks in _LAYOUTS:
        if find_root(path, *marks) is not None:
            return Data(source=source, path=str(path))
    if _is_chexpert(path):
        return Data(source="chexpert", path=str(path))
    files = list_loose_files(path)
    if any(file.suffix == ".parquet" and _encoded_column(file) for file in files):
        return _guess_table(next(f for f in files if f.suffix == ".parquet")).model_copy(
            update={"path": str(path)}
        )
    tables = [file for file in files if _looks_like_manifest(file)]
    kind = _class_folders(path)
    if tables and kind:
        raise DataError(
            f"there are class folders here and also a table, {tables[0].name}",
            where=str(path),
            hint=f"Choose: the table itself as PATH ({tables[0].name}), or a folder without it.",
        )
    if kind:
        shared = find_site_folders(path, is_picture if kind == "folder" else is_dicom)
        layout: Layout = "auto" if shared is None else "site/class"
        return Data(source=kind, path=str(path), folders=layout)
    if len(tables) == 1:
        return _guess_table(tables[0])
    return _last_resort(path, tables)


def _last_resort(path: Path, tables: list[Path]) -> Data:
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables[:5])
        raise DataError(
            f"there are several tables here ({names})", where=str(path), hint="Name one."
        )
    archives = [file for file in list_loose_files(path) if file.suffix == ".npz"]
    if len(archives) == 1:
        return Data(source="npz", path=str(archives[0]))
    if any(file.suffix == ".json" for file in walk(path)):
        return Data(source="femnist", path=str(path))
    loose = any(is_picture(file) for file in list_loose_files(path))
    raise DataError(
        "there are images here, but no class folders" if loose else "there are no images here",
        where=str(path),
        hint="Make one folder per class, or write a manifest with the columns path and label.",
    )


def _is_chexpert(path: Path) -> bool:
    root = find_root(path, "train.csv")
    if root is None:
        return False
    try:
        return {"Path", "Frontal/Lateral"} <= set(read_csv(root / "train.csv"))
    except DataError:
        return False


def _looks_like_manifest(file: Path) -> bool:
    if file.suffix.casefold() not in TABLE_SUFFIXES:
        return False
    try:
        return _first(_columns(file), PATH_NAMES) is not None
    except DataError:
        return False


def _class_folders(path: Path) -> str | None:
    """`folder` or `dicom` for the first image that lies in a class folder."""
    for _, top in find_split_folders(path):
        for folder in list_subfolders(top):
            for file in walk(folder):
                if is_picture(file):
                    return "folder"
                if is_dicom(file):
                    return "dicom"
    return None
