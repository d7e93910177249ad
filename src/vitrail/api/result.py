"""A result: rows for a table, a picture for a notebook, a file."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.errors import ConfigError
from vitrail.files import report_write_errors, write_text
from vitrail.report.html import Html, el, join
from vitrail.runs.predict_images import escape_cell

SHOWN = 20  # rows that a notebook shows; `to_frame()` has all
Row = dict[str, Any]
NO_DIAGNOSIS = (
    "Not a diagnosis and not a medical device: what this model computed, on the images that it was "
    "trained on, for research."
)
"""The line that goes with every prediction and explanation."""


class Result:
    """Rows of plain values under one head each. A subclass says which, and what else it writes."""

    title: ClassVar[str] = "result"
    caution: ClassVar[str] = ""
    forms: ClassVar[tuple[str, ...]] = (".csv", ".json", ".parquet")

    def rows(self) -> list[Row]:
        """The result, one dictionary a row."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """A pandas DataFrame where pandas is installed, else a `pyarrow.Table`."""
        table = self.to_arrow()
        return table.to_pandas() if importlib.util.find_spec("pandas") else table

    def to_arrow(self) -> pa.Table:
        """A `pyarrow.Table`; what is no plain value stands in it as JSON."""
        rows = [{name: _plain(value) for name, value in row.items()} for row in self.rows()]
        heads = list(dict.fromkeys(name for row in rows for name in row))
        return pa.table({name: _column([row.get(name) for row in rows]) for name in heads})

    def to_json(self) -> Any:
        """The result as JSON values."""
        return self.rows()

    def save(self, path: str | Path) -> Path:
        """Write a file; its name says in which form (see `forms`). Returns the path."""
        target = Path(path)
        form = target.suffix.casefold()
        if form not in self.forms:
            raise ConfigError(
                f"a {self.title} cannot be written as {target.name!r}",
                where="save",
                hint=f"Use a name in {', '.join(self.forms)}.",
            )
        self._write(target, form)
        return target

    def _write(self, path: Path, form: str) -> None:
        if form == ".json":
            write_text(path, json.dumps(self.to_json(), indent=1, default=str) + "\n")
        elif form == ".parquet":
            with report_write_errors(path):
                pq.write_table(self.to_arrow(), path)
        else:
            write_text(path, self._format_csv())

    def _format_csv(self) -> str:
        out = io.StringIO()
        rows = self.to_arrow().to_pylist()
        writer = csv.writer(out, lineterminator="\n")
        heads = list(rows[0]) if rows else []
        writer.writerow([escape_cell(head) for head in heads])
        for row in rows:
            values = ("" if row[head] is None else row[head] for head in heads)
            writer.writerow([escape_cell(v) if isinstance(v, str) else v for v in values])
        return out.getvalue()

    def _repr_html_(self) -> str:
        """What a notebook shows: the rows, and the line that goes with them."""
        parts = [self._picture(), self._render_rows()]
        if self.caution:
            parts.append(el("p", el("small", self.caution)))
        return str(el("div", join([part for part in parts if part is not None])))

    def _picture(self) -> Html | None:
        """What stands above the rows."""
        return None

    def _render_rows(self) -> Html:
        rows = self.to_arrow().slice(0, SHOWN).to_pylist()
        heads: Sequence[str] = list(rows[0]) if rows else ()
        count = len(self.rows())
        more = f", the first {SHOWN} of {count}" if count > SHOWN else ""
        return el(
            "table",
            el("caption", f"{self.title}{more}"),
            el("thead", el("tr", *(el("th", head) for head in heads))),
            el("tbody", *(el("tr", *(el("td", _show(row[h])) for h in heads)) for row in rows)),
        )

    def __repr__(self) -> str:
        return f"<{self.title}: {len(self.rows())} rows; to_frame(), save(path)>"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return json.dumps(value, default=str)


def _column(values: list[Any]) -> pa.Array:
    """One kind a column: numbers as floats where they are mixed, everything else as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and len(kinds) == 2:
        values = [None if value is None else float(value) for value in values]
    elif len(kinds) > 1:
        values = [None if value is None else str(value) for value in values]
    return pa.array(values)


def _show(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
