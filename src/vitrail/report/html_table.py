"""A table that can be sorted on the page and is written as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vitrail.report.html import Html, el, join, to_html

_MANY = 7  # columns that a page of usual width has room for
CellFormatter = Callable[[Any], object]


@dataclass(frozen=True)
class Column:
    """One column: its head, how a value is shown, and what the head means."""

    name: str
    show: CellFormatter = str
    about: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of plain values under columns; the first column names the row."""

    name: str  # of its file
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def to_csv(self) -> str:
        """Plain values, as a spreadsheet reads them; nothing that it would take for a formula."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows([[_quote_formula(value) for value in row] for row in self.rows])
        return out.getvalue()

    def to_html(self) -> Html:
        """The table in a frame that scrolls by itself if it is wider than the page."""
        heads = [_render_head(column, len(self.rows) > 1) for column in self.columns]
        rows = [el("tr", *_render_cells(self.columns, row)) for row in self.rows]
        table = el(
            "table",
            el("caption", self.caption),
            el("thead", el("tr", *heads)),
            el("tbody", *rows),
            class_="dense" if len(self.columns) > _MANY else None,
        )
        note = el("p", self.note, class_="soft") if self.note else None
        return join([wrap_scrolling(self.caption, table), note])


def wrap_scrolling(label: str, *children: object) -> Html:
    """A region that scrolls sideways by itself and can be reached by keyboard."""
    return el("div", *children, class_="wide", role="region", tabindex="0", aria_label=label)


def _render_head(column: Column, sortable: bool) -> Html:
    name: object = to_html(column.name)
    if sortable:
        name = el("button", column.name, type="button", class_="sort", title=column.about or None)
    return el("th", name, scope="col", class_="number" if column.number else None)


def _render_cells(columns: Sequence[Column], row: Sequence[Any]) -> list[Html]:
    cells = []
    for at, (column, value) in enumerate(zip(columns, row, strict=True)):
        shown = "\N{EN DASH}" if value is None else column.show(value)
        key = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        class_ = "number" if column.number else "long" if _is_long(value) else None
        if at == 0:
            cells.append(el("th", shown, scope="row", data_sort=key, class_=class_))
        else:
            cells.append(el("td", shown, data_sort=key, class_=class_))
    return cells


def _is_long(value: Any) -> bool:
    """Whether a text needs room so as not to become a tower of words."""
    return isinstance(value, str) and len(value) > 16


def _quote_formula(value: Any) -> object:
    """A text that begins like a formula is quoted, so that opening a table runs nothing."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value
