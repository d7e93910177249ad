"""Rows by columns: a tone for each pair, the number in it where there is room."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.charts.drawing import Drawing, Mark, Plot, Shape, Sign, Text, box
from vitrail.report.charts.scale import estimate_width, shorten_text

_FONT = 12.0
_MOST_TIPS = 4000
_MEAN = 0.58  # of the font size, a letter of usual words
_LINE = 14.0  # of a name that is written in several lines
_FLAT = 62.0  # a column this wide has its name above it, not turned
_SMALL = 36  # cells that need no zoom
_MOST_ZOOM = 16  # names and numbers that have no room even there are left out


@dataclass(frozen=True)
class Cell:
    """How dark a pair is (0 to 1, None: nothing there), its text, and a sign instead of a tone."""

    tone: float | None
    text: str = ""
    tip: str = ""
    sign: Sign | None = None
    role: str = "for"


@dataclass(frozen=True)
class _Grid:
    """Where cells lie, and how the names above them are written."""

    left: float
    top: float
    wide: float
    high: float
    names: tuple[tuple[str, ...], ...]  # lines, or one turned line, of each column

    @property
    def flat(self) -> bool:
        return self.wide >= _FLAT


def draw_matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    title: str,
    width: float,
    across: str = "",
) -> Drawing:
    """Names of narrow columns are turned; of very narrow ones every so many-th is written."""
    grid = _lay_out_grid(rows, columns, width)
    shapes: list[Shape] = [Text((grid.left, 8), across, "soft", _FONT)] if across else []
    for at, name in enumerate(columns):
        shapes += _draw_column_name(grid, at, name)
    tips = len(rows) * len(columns) <= _MOST_TIPS
    if not tips:
        extent = (grid.wide * len(columns), grid.high * len(rows))
        shapes.append(box(grid.left, grid.top, *extent, "quiet", zoom="area"))
    for down, name in enumerate(rows):
        y = grid.top + grid.high * down
        min_zoom = _compute_min_zoom(down, 14, grid.high)
        if min_zoom <= _MOST_ZOOM:
            text = shorten_text(name, grid.left - 12, _FONT)
            place = (grid.left - 8, y + grid.high / 2)
            shapes.append(
                Text(place, text, "ink", _FONT, "end", tip=name, zoom="row", min_zoom=min_zoom)
            )
        for at, cell in enumerate(cells[down]):
            if not tips and cell.tone is None:
                continue  # the sheet below them is enough
            tip = f"{name}, {columns[at]}: {cell.tip or cell.text}" if tips else ""
            shapes += _draw_cell(cell, grid.left + grid.wide * at, y, grid.wide, grid.high, tip)
    about = f"{len(rows)} rows by {len(columns)} columns"
    bottom = grid.top + grid.high * len(rows)
    plot = None
    if len(rows) * len(columns) > _SMALL:
        plot = Plot((grid.left, grid.top, grid.left + grid.wide * len(columns), bottom))
    return Drawing(width, bottom + 8, title, about, shapes, plot)


def _compute_min_zoom(at: int, room: float, pitch: float) -> float:
    """From which zoom on the name of a row or column has room; every so many-th has from 1 on."""
    skip = 1
    while skip * pitch < room:
        skip *= 2
    zoom = 1.0
    while at % skip:
        skip //= 2
        zoom *= 2
    return zoom


def place_rows(rows: Sequence[str], columns: Sequence[str], width: float) -> tuple[float, float]:
    """Where the first row of a matrix begins, and how high each is: for what stands beside it."""
    grid = _lay_out_grid(rows, columns, width)
    return grid.top, grid.high


def _lay_out_grid(rows: Sequence[str], columns: Sequence[str], width: float) -> _Grid:
    left = min(max((estimate_width(r, _FONT) for r in rows), default=0.0) + 18, 0.3 * width)
    count = max(1, len(columns))
    wide = min(130.0, (width - left - 8) / count)
    high = 8.0 if len(rows) > 60 else min(30.0, max(wide, 16.0))
    if wide >= _FLAT:
        names = tuple(_wrap_name(name, wide - 6) for name in columns)
        lines = max((len(name) for name in names), default=1)
        return _Grid(left, 22.0 + _LINE * lines, wide, high, names)
    longest = min(max((estimate_width(name, _FONT) for name in columns), default=0.0), 130.0)
    # turned names reach to the right of their column
    wide = min(wide, (width - left - 0.72 * longest) / count)
    turned = tuple((shorten_text(name, 130, _FONT),) for name in columns)
    return _Grid(left, 0.75 * longest + 26.0, wide, high, turned)


def _wrap_name(name: str, room: float) -> tuple[str, ...]:
    """A name in at most three lines."""
    letters = max(4, int(room / (_MEAN * _FONT)))
    lines = textwrap.wrap(" ".join(name.split()) or "(no name)", letters)
    kept = lines[:3] if len(lines) <= 3 else [*lines[:2], "… " + lines[-1]]
    return tuple(shorten_text(line, room, _FONT) for line in kept)


def _draw_column_name(grid: _Grid, at: int, name: str) -> list[Shape]:
    x = grid.left + grid.wide * (at + 0.5)
    if not grid.flat:
        min_zoom = _compute_min_zoom(at, 15, grid.wide)
        if min_zoom > _MOST_ZOOM:
            return []
        text = grid.names[at][0]
        place = (x, grid.top - 8)
        return [
            Text(place, text, "ink", _FONT, turn=45, tip=name, zoom="column", min_zoom=min_zoom)
        ]
    lines = grid.names[at]
    first = grid.top - 10 - _LINE * (len(lines) - 1)
    return [
        Text((x, first + _LINE * n), line, "ink", _FONT, "middle", tip=name, zoom="column")
        for n, line in enumerate(lines)
    ]


def _draw_cell(cell: Cell, x: float, y: float, wide: float, high: float, tip: str) -> list[Shape]:
    gap = 1.0 if min(wide, high) > 6 else 0.0
    place = (x + gap, y + gap, wide - 2 * gap, high - 2 * gap)
    shapes: list[Shape] = [box(*place, "quiet", tip=tip, zoom="area")]
    min_zoom = (
        max(1.0, (estimate_width(cell.text, _FONT) + 4) / wide, 15 / high)
        if cell.text
        else math.inf
    )
    middle = (x + wide / 2, y + high / 2)
    if cell.sign is not None:
        fits_beside = min_zoom == 1 and estimate_width(cell.text, _FONT) + 26 <= wide
        at = middle[0] - 14 if fits_beside else middle[0]
        shapes.append(Mark((at, middle[1]), 5, cell.role, cell.sign, tip=tip, zoom="point"))
        if fits_beside:
            text_at = (at + 12, middle[1])
            shapes.append(Text(text_at, cell.text, "ink", _FONT, tip=tip, zoom="point"))
        return shapes
    tone = min(1.0, max(0.0, cell.tone or 0.0))
    if tone > 0:
        shapes.append(box(*place, cell.role, alpha=tone, tip=tip, zoom="area"))
    if min_zoom <= (_MOST_ZOOM if tip else 1):
        role = "card" if tone > 0.62 else "ink"
        shapes.append(
            Text(middle, cell.text, role, _FONT, "middle", tip=tip, zoom="point", min_zoom=min_zoom)
        )
    return shapes
