"""Rows by columns: a tone for each pair, the number in it where there is room."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.document.scale import cut, wide
from vitrail.report.document.scene import Mark, Plot, Scene, Shape, Sign, Text, box

_FONT = 12.0
_MOST_TIPS = 4000
_LINE = 14.0  # of a name that is written in several lines
_FLAT = 62.0  # a column this wide has its name above it, not turned
_SMALL = 36  # cells that need no zoom
_MOST_ZOOM = 16  # names and numbers that have no room even there are left out


@dataclass(frozen=True)
class Cell:
    """How dark a pair is (0 to 1, None: nothing there), its text, and a sign instead of a tone."""

    tone: float | None
    text: str = ""
    told: str = ""
    sign: Sign | None = None
    role: str = "for"


@dataclass(frozen=True)
class _Grid:
    """Where cells lie, and how the names above them are written."""

    left: float
    top: float
    each: float
    high: float
    names: tuple[tuple[str, ...], ...]  # lines, or one turned line, of each column

    @property
    def flat(self) -> bool:
        return self.each >= _FLAT


def matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    title: str,
    width: float,
    across: str = "",
) -> Scene:
    """Names of narrow columns are turned; of very narrow ones every so many-th is written."""
    grid = _grid(rows, columns, width)
    shapes: list[Shape] = [Text((grid.left, 8), across, "soft", _FONT)] if across else []
    for at, name in enumerate(columns):
        shapes += _column(grid, at, name)
    tips = len(rows) * len(columns) <= _MOST_TIPS
    if not tips:
        whole = (grid.each * len(columns), grid.high * len(rows))
        shapes.append(box(grid.left, grid.top, *whole, "quiet", zoom="area"))
    for down, name in enumerate(rows):
        y = grid.top + grid.high * down
        above = _above(down, 14, grid.high)
        if above <= _MOST_ZOOM:
            text = cut(name, grid.left - 12, _FONT)
            place = (grid.left - 8, y + grid.high / 2)
            shapes.append(Text(place, text, "ink", _FONT, "end", tip=name, zoom="row", above=above))
        for at, cell in enumerate(cells[down]):
            if not tips and cell.tone is None:
                continue  # the sheet below them is enough
            told = f"{name}, {columns[at]}: {cell.told or cell.text}" if tips else ""
            shapes += _cell(cell, grid.left + grid.each * at, y, grid.each, grid.high, told)
    about = f"{len(rows)} rows by {len(columns)} columns"
    bottom = grid.top + grid.high * len(rows)
    plot = None
    if len(rows) * len(columns) > _SMALL:
        plot = Plot((grid.left, grid.top, grid.left + grid.each * len(columns), bottom))
    return Scene(width, bottom + 8, title, about, shapes, plot)


def _above(at: int, room: float, each: float) -> float:
    """From which zoom on the name of a row or column has room; every so many-th has from 1 on."""
    skip = 1
    while skip * each < room:
        skip *= 2
    found = 1.0
    while at % skip:
        skip //= 2
        found *= 2
    return found


def _grid(rows: Sequence[str], columns: Sequence[str], width: float) -> _Grid:
    left = min(max((wide(r, _FONT) for r in rows), default=0.0) + 18, 0.3 * width)
    count = max(1, len(columns))
    each = min(130.0, (width - left - 8) / count)
    high = 8.0 if len(rows) > 60 else min(30.0, max(each, 16.0))
    if each >= _FLAT:
        letters = max(4, int((each - 8) / (0.56 * _FONT)))
        names = tuple(_wrapped(name, letters) for name in columns)
        lines = max((len(name) for name in names), default=1)
        return _Grid(left, 22.0 + _LINE * lines, each, high, names)
    longest = min(max((wide(name, _FONT) for name in columns), default=0.0), 130.0)
    # turned names reach to the right of their column
    each = min(each, (width - left - 0.72 * longest) / count)
    turned = tuple((cut(name, 130, _FONT),) for name in columns)
    return _Grid(left, 0.75 * longest + 26.0, each, high, turned)


def _wrapped(name: str, letters: int) -> tuple[str, ...]:
    """A name in at most three lines."""
    lines = textwrap.wrap(" ".join(name.split()) or "(no name)", letters)
    kept = lines[:3] if len(lines) <= 3 else [*lines[:2], "… " + lines[-1]]
    return tuple(cut(line, letters * 0.56 * _FONT, _FONT) for line in kept)


def _column(grid: _Grid, at: int, name: str) -> list[Shape]:
    x = grid.left + grid.each * (at + 0.5)
    if not grid.flat:
        above = _above(at, 15, grid.each)
        if above > _MOST_ZOOM:
            return []
        text = grid.names[at][0]
        place = (x, grid.top - 8)
        return [Text(place, text, "ink", _FONT, turn=45, tip=name, zoom="column", above=above)]
    lines = grid.names[at]
    first = grid.top - 10 - _LINE * (len(lines) - 1)
    return [
        Text((x, first + _LINE * n), line, "ink", _FONT, "middle", tip=name, zoom="column")
        for n, line in enumerate(lines)
    ]


def _cell(cell: Cell, x: float, y: float, each: float, high: float, told: str) -> list[Shape]:
    gap = 1.0 if min(each, high) > 6 else 0.0
    place = (x + gap, y + gap, each - 2 * gap, high - 2 * gap)
    found: list[Shape] = [box(*place, "quiet", tip=told, zoom="area")]
    above = max(1.0, (wide(cell.text, _FONT) + 4) / each, 15 / high) if cell.text else math.inf
    middle = (x + each / 2, y + high / 2)
    if cell.sign is not None:
        beside = above == 1 and wide(cell.text, _FONT) + 26 <= each
        at = middle[0] - 14 if beside else middle[0]
        found.append(Mark((at, middle[1]), 5, cell.role, cell.sign, tip=told, zoom="point"))
        if beside:
            told_at = (at + 12, middle[1])
            found.append(Text(told_at, cell.text, "ink", _FONT, tip=told, zoom="point"))
        return found
    tone = min(1.0, max(0.0, cell.tone or 0.0))
    if tone > 0:
        found.append(box(*place, cell.role, alpha=tone, tip=told, zoom="area"))
    if above <= (_MOST_ZOOM if told else 1):
        role = "card" if tone > 0.62 else "ink"
        found.append(
            Text(middle, cell.text, role, _FONT, "middle", tip=told, zoom="point", above=above)
        )
    return found
