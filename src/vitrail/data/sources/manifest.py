"""A CSV or Parquet table with one row per image file: path, label, and what else is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import RawLabel, Record, Records
from vitrail.data.sources.csv_tables import (
    TABLE_SUFFIXES,
    Columns,
    as_box,
    as_label,
    as_word,
    find_box_columns,
    find_column,
    read_table,
    require_column,
)
from vitrail.data.sources.listing import list_loose_files
from vitrail.errors import DataError
from vitrail.rng import Key

PATH_NAMES = ("image", "path", "file", "filename", "file_name", "image_path", "filepath", "img")


@SOURCES.register("manifest")
def manifest(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Images listed in a table; their paths are relative to the table, or absolute."""
    return read_manifest(data, path)


def read_manifest(data: Data, path: Path) -> Records:
    """The records of a table of image files."""
    table = find_table(path)
    columns = read_table(table)
    asked = None if data.image == "image" else data.image
    files = find_column(asked, PATH_NAMES, columns, "data.image", table)
    if files is None:
        files = require_column(data.image, columns, "data.image", table)
    paths = [as_word(value) for value in columns[files]]
    if not paths:
        raise DataError("this table has no rows", where=str(table))
    empty = next((i for i, value in enumerate(paths) if value is None), None)
    if empty is not None:
        raise DataError(f"row {empty} names no file in column {files!r}", where=str(table))
    names = [name for name in paths if name is not None]
    images = [table.parent / name.replace("\\", "/") for name in names]
    rows, extra = make_records(data, table, columns, names, images, {files})
    return Records(rows, columns=extra, files=())


def find_table(path: Path) -> Path:
    """The table itself, or the only table in a folder."""
    if path.is_file():
        return path
    tables = [file for file in list_loose_files(path) if file.suffix.casefold() in TABLE_SUFFIXES]
    if len(tables) != 1:
        shown = ", ".join(file.name for file in tables[:5]) or "none"
        raise DataError(
            f"a manifest is one table, and this folder holds {len(tables)} ({shown})",
            where=str(path),
            hint="Name the file in data.path.",
        )
    return tables[0]


def make_records(
    data: Data,
    table: Path,
    columns: Columns,
    names: Sequence[str],
    images: Sequence[Any],
    used: set[str],
) -> tuple[list[Record], dict[str, Sequence[object]]]:
    """Records of a table's rows, and the columns that nothing here has used."""
    label = require_column(data.label, columns, "data.label", table)
    site = find_column(data.site, ("site",), columns, "data.site", table)
    patient = find_column(
        data.patient, ("patient", "patient_id", "patientid"), columns, "data.patient", table
    )
    split = find_column(data.split, ("split",), columns, "data.split", table)
    corners = find_box_columns(data, columns, table)
    labels = _labels(columns[label], data)
    parts = columns.get("parts", ())
    points = bool(parts) and all(isinstance(v, list) or v is None for v in parts)

    def word(column: str | None, i: int) -> str | None:
        return None if column is None else as_word(columns[column][i])

    def box(i: int) -> Any:
        cells = tuple(columns[name][i] for name in corners)
        return cells[0] if len(cells) == 1 else (cells or None)

    rows = [
        Record(
            name,
            images[i],
            labels[i],
            word(site, i),
            word(patient, i),
            word(split, i),
            as_box(box(i), name, table),
            _points(parts[i]) if points else None,
        )
        for i, name in enumerate(names)
    ]
    # The column of a site stays in sight, because partition.column may name it as well.
    hidden = {*used, label, patient, split, *corners, "parts" if points else None}
    return rows, {name: values for name, values in columns.items() if name not in hidden}


def _labels(values: Sequence[Any], data: Data) -> list[RawLabel]:
    """Raw labels; with `data.positive`, text such as "A|B" is a list of findings."""
    labels = [as_label(value) for value in values]
    if data.positive is not None and any(isinstance(v, str) and "|" in v for v in labels):
        return [tuple(v.split("|")) if isinstance(v, str) else v for v in labels]
    return labels


def _points(cell: Any) -> tuple[tuple[float, float] | None, ...] | None:
    if cell is None:
        return None
    return tuple(None if p is None else (float(p[0]), float(p[1])) for p in cell)
