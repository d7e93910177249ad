"""Tables beside images: CSV as people save it, or Parquet; columns found by name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.config.schema import Data
from vitrail.data.records import Box, RawLabel
from vitrail.errors import DataError, suggest_name

Columns = dict[str, Sequence[Any]]

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".parquet", ".pq"})
_CORNERS = ("x0", "y0", "x1", "y1")


def read_table(path: Path) -> Columns:
    """A whole table by columns; CSV cells are text, an empty one is None."""
    if path.suffix.casefold() in (".parquet", ".pq"):
        return read_parquet(path, None)
    return read_csv(path)


def read_parquet(path: Path, columns: list[str] | None) -> Columns:
    """Some columns of a Parquet file as Python values."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            table = file.read(columns=columns)
    except (pa.ArrowException, OSError) as err:
        raise DataError(f"this Parquet file cannot be read ({err})", where=str(path)) from err
    return {name: table.column(name).to_pylist() for name in table.column_names}


def read_csv(path: Path) -> Columns:
    """A CSV file with a header; comma, semicolon, tab or bar; with or without a byte-order mark."""
    text = _read_text(path)
    header_line = text.partition("\n")[0]
    mark = max(",;\t|", key=header_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except csv.Error as err:
        raise DataError(f"line {reader.line_num}: {err}", where=str(path)) from err
    if not lines:
        raise DataError("this table is empty", where=str(path))
    header = [cell.strip() for cell in lines[0][1]]
    double = sorted({name for name in header if header.count(name) > 1 and name})
    if double:
        raise DataError(f"two columns are called {double[0]!r}", where=str(path))
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            raise DataError(
                f"line {number} has {len(cells)} cells, the header has {len(header)}",
                where=str(path),
                hint="Put cells that hold the separator between double quotes.",
            )
    return {
        name: [cells[i].strip() or None for _, cells in lines[1:]] for i, name in enumerate(header)
    }


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as err:
        raise DataError(f"cannot be read ({err.strerror})", where=str(path)) from err
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as err:
        raise DataError(
            f"is not UTF-8 text (byte {err.start})", where=str(path), hint="Save it as UTF-8."
        ) from err


def require_column(name: str, columns: Iterable[str], key: str, where: Path) -> str:
    """A column that must exist; the error names the nearest one."""
    names = list(columns)
    if name in names:
        return name
    raise DataError(
        f"there is no column {name!r} ({key})", where=str(where), hint=suggest_name(name, names)
    )


def find_column(
    wanted: str | None, usual: Sequence[str], columns: Iterable[str], key: str, where: Path
) -> str | None:
    """The column that was asked for, else the first usual name that exists in any case."""
    names = list(columns)
    if wanted is not None:
        return require_column(wanted, names, key, where)
    folded = {name.casefold(): name for name in reversed(names)}
    return next((folded[name] for name in usual if name in folded), None)


def as_label(value: Any) -> RawLabel:
    """A cell as a raw label: an integer, a word, a list of findings, or None for nothing."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, (list, tuple)):
        return tuple(str(v) for v in value if v is not None)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.startswith("["):
        try:
            several = json.loads(value.replace("'", '"'))
        except ValueError:
            return value
        return tuple(str(v) for v in several) if isinstance(several, list) else value
    return value if isinstance(value, (str, int)) else str(value)


def as_word(value: Any) -> str | None:
    """A cell as a word, or None; a whole number loses its decimal point."""
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def find_box_columns(data: Data, columns: Iterable[str], where: Path) -> tuple[str, ...]:
    """The column, or the four columns, that hold boxes; empty if there are none."""
    names = list(columns)
    if data.box is not None:
        asked = [name.strip() for name in data.box.split(",")]
        several = data.box not in names and len(asked) == 4
        wanted = asked if several else [data.box]
        return tuple(require_column(name, names, "data.box", where) for name in wanted)
    if "box" in names:
        return ("box",)
    return _CORNERS if set(_CORNERS) <= set(names) else ()


def as_box(value: Any, name: str, where: Path) -> Box | None:
    """A box of four finite numbers x0 <= x1, y0 <= y1, from a list, JSON, or four cells."""
    if value is None or value == "" or (isinstance(value, tuple) and set(value) <= {None, ""}):
        return None
    try:
        several = json.loads(value) if isinstance(value, str) else value
        x0, y0, x1, y1 = (float(v) for v in several)
    except (TypeError, ValueError):
        x0 = y0 = x1 = y1 = float("nan")
    if not (x0 <= x1 and y0 <= y1 and abs(x0) + abs(y0) + abs(x1) + abs(y1) < float("inf")):
        raise DataError(
            f"the box of {name} is {value!r}",
            where=str(where),
            hint="A box is x0, y0, x1, y1 in pixels of the original image.",
        )
    return (x0, y0, x1, y1)
