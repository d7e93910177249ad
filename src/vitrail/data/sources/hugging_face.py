"""A folder that Hugging Face's `datasets` wrote with `save_to_disk`: Arrow files and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Record, Records
from vitrail.data.sources.csv_tables import require_column
from vitrail.data.sources.manifest import make_records
from vitrail.errors import DataError
from vitrail.rng import Key

INFO, SPLITS, STATE = "dataset_info.json", "dataset_dict.json", "state.json"


@SOURCES.register("hugging-face")
def hugging_face(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """A saved `Dataset`, or a `DatasetDict` whose parts are the splits.

    Images are encoded (`datasets.Image`); class names come from the label's feature.
    """
    parts = _list_parts(path)
    rows: list[Record] = []
    columns: dict[str, list[object]] = {}
    files: list[Path] = []
    for split, folder in parts:
        records, extra, used = _read_part(data, folder, split)
        for name in {**columns, **extra}:
            column = columns.setdefault(name, [None] * len(rows))
            column.extend(extra.get(name, [None] * len(records)))
        rows += records
        files += used
    return Records(rows, _read_classes(parts[0][1], data.label), (), tuple(files), dict(columns))


def _list_parts(path: Path) -> list[tuple[str | None, Path]]:
    """The parts of a saved data set with the splits that they are."""
    parts: list[tuple[str | None, Path]] = [(None, path)]
    if (path / SPLITS).is_file():
        names = _read_json(path / SPLITS).get("splits", [])
        parts = [(str(name), path / str(name)) for name in names]
    missing = next((folder for _, folder in parts if not (folder / STATE).is_file()), None)
    if not parts or missing is not None:
        raise DataError(
            f"this is not a data set that `save_to_disk` wrote (it has no {STATE})",
            where=str(missing or path),
            hint="Save it with `dataset.save_to_disk(FOLDER)`, or as Parquet.",
        )
    return parts


def _read_part(
    data: Data, folder: Path, split: str | None
) -> tuple[list[Record], dict[str, Any], list[Path]]:
    """The records of one part, its other columns, and its files."""
    files = [folder / str(item["filename"]) for item in _read_json(folder / STATE)["_data_files"]]
    outside = next((f for f in files if f.parent.resolve() != folder.resolve()), None)
    if outside is not None:
        raise DataError(f"{STATE} names a file outside of its folder", where=str(folder))
    tables = [_read_arrow(file) for file in files]
    if not tables:
        return [], {}, []
    table = pa.concat_tables(tables)
    image = require_column(data.image, table.column_names, "data.image", folder)
    cells = table.column(image).to_pylist()
    prefix = f"{split}:" if split else ""
    names = [f"{prefix}{_name(cell, at)}" for at, cell in enumerate(cells)]
    images = [_find_image(cell, names[at], folder) for at, cell in enumerate(cells)]
    others = [name for name in table.column_names if name != image]
    columns = {name: table.column(name).to_pylist() for name in others}
    if split is not None and data.split is None and "split" not in columns:
        columns["split"] = [split] * len(cells)
    rows, extra = make_records(data, folder, columns, names, images, set())
    return rows, dict(extra), files


def _read_arrow(file: Path) -> Any:
    try:
        with pa.memory_map(str(file)) as handle:
            return pa.ipc.open_stream(handle).read_all()
    except (pa.ArrowException, OSError) as err:
        raise DataError(f"this Arrow file cannot be read ({err})", where=str(file)) from err


def _read_json(file: Path) -> dict[str, Any]:
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise DataError(f"this file cannot be read ({err})", where=str(file)) from err
    if not isinstance(tree, dict):
        raise DataError("this file holds no table", where=str(file))
    return tree


def _name(cell: Any, row: int) -> str:
    path = cell.get("path") if isinstance(cell, dict) else None
    return Path(str(path)).name if path else f"row {row}"


def _find_image(cell: Any, name: str, folder: Path) -> Path | bytes:
    """The encoded image, or the file that stands for it."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(content, bytes):
        return content
    path = cell.get("path") if isinstance(cell, dict) else None
    if path:
        return folder / str(path)
    raise DataError(
        f"{name} holds no encoded image",
        where=str(folder),
        hint="The column must be of the feature `datasets.Image`; name it in data.image.",
    )


def _read_classes(folder: Path, label: str) -> tuple[str, ...] | None:
    """The names of integer labels, where the label's feature has them."""
    try:
        names = _read_json(folder / INFO)["features"][label]["names"]
        return tuple(str(name) for name in names)
    except (DataError, KeyError, TypeError):
        return None
