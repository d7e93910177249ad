"""Parquet files with encoded images inside: a struct of bytes and path, or plain bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import ParquetImage, Record, Records
from vitrail.data.sources.csv_tables import read_parquet, require_column
from vitrail.data.sources.listing import list_loose_files
from vitrail.data.sources.manifest import make_records
from vitrail.data.split import SPLIT_WORDS
from vitrail.errors import DataError
from vitrail.rng import Key


@SOURCES.register("parquet")
def parquet(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Images inside one Parquet file, or inside all Parquet files of a folder.

    Where every file of a folder is called `train-...`, `test-...` and so on, that is the split.
    """
    files = (
        [path] if path.is_file() else [f for f in list_loose_files(path) if f.suffix == ".parquet"]
    )
    if not files:
        raise DataError("there is no Parquet file here", where=str(path))
    words = [file.stem.casefold().split("-")[0].split("_")[0] for file in files]
    named = len(files) > 1 and all(word in SPLIT_WORDS for word in words)
    rows: list[Record] = []
    columns: dict[str, list[object]] = {}
    classes: tuple[str, ...] | None = None
    for file, word in zip(files, words):
        records, extra = _one_file(data, file, word if named else None, len(files) > 1)
        for name in {**columns, **extra}:
            column = columns.setdefault(name, [None] * len(rows))
            column.extend(extra.get(name, [None] * len(records)))
        rows += records
        classes = classes or _class_names(file, data.label)
    return Records(rows, classes, files=tuple(files), columns=dict(columns))


def _schema(file: Path) -> Any:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as err:
        raise DataError(f"this Parquet file cannot be read ({err})", where=str(file)) from err


def _one_file(
    data: Data, file: Path, split: str | None, several: bool
) -> tuple[list[Record], dict[str, Any]]:
    schema = _schema(file)
    image = require_column(data.image, schema.names, "data.image", file)
    kind = schema.field(image).type
    plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    if not (plain or struct):
        raise DataError(
            f"column {image!r} holds {kind}, not encoded images",
            where=str(file),
            hint='A table of file names is source = "manifest".',
        )
    others = [name for name in schema.names if name != image]
    paths = struct and kind.get_field_index("path") >= 0
    columns = read_parquet(file, others + ([f"{image}.path"] if paths else []))
    cells = columns.pop(image, None)
    count = pq.read_metadata(file).num_rows
    prefix = f"{file.name}:" if several else ""
    names = [f"{prefix}{_name(cells[i] if cells else None, i)}" for i in range(count)]
    images = [ParquetImage(file, i, image) for i in range(count)]
    if split is not None and data.split is None and "split" not in columns:
        columns["split"] = [split] * count
    rows, extra = make_records(data, file, columns, names, images, set())
    return rows, dict(extra)


def _name(cell: Any, row: int) -> str:
    path = cell.get("path") if isinstance(cell, dict) else None
    return str(path) if path else f"row {row}"


def _class_names(file: Path, label: str) -> tuple[str, ...] | None:
    """Names of integer labels, if the writer left them in the file's metadata."""
    raw = (_schema(file).metadata or {}).get(b"huggingface", b"")
    try:
        names = json.loads(raw)["info"]["features"][label]["names"]
        return tuple(str(name) for name in names)
    except (TypeError, ValueError, KeyError):
        return None
