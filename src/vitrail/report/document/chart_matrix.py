"""Rows by columns: a tone for each pair, the number in it where there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.document.scale import cut, wide
from vitrail.report.document.scene import Mark, Scene, Shape, Sign, Text, box

_FONT = 12.0
_MOST_TIPS = 4000


@dataclass(frozen=True)
class Cell:
    """How dark a pair is (0 to 1, None: nothing there), its text, and a sign instead of a tone."""

    tone: float | None
    text: str = ""
    told: str = ""
    sign: Sign | None = None
    role: str = "for"


def matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    title: str,
    width: float,
    across: str = "",
) -> Scene:
    """Names of columns are turned; where they are too many, every so many-th is written."""
    left = min(max((wide(r, _FONT) for r in rows), default=0.0) + 18, 0.3 * width)
    each = min(64.0, (width - left - 8) / max(1, len(columns)))
    high = min(30.0, max(each, 16.0)) if len(rows) <= 60 else 8.0
    step = max(1, -(-15 // max(1, int(each))))
    longest = max((wide(name, _FONT) for name in columns), default=0.0)
    flat = longest + 6 <= each
    top = 34.0 if flat else min(longest * 0.75, 110.0) + 26.0
    # turned names reach to the right of their column
    over = 0.0 if flat else min(longest * 0.6, 80.0)
    each = min(each, (width - left - over) / max(1, len(columns)))
    shapes: list[Shape] = [Text((left, 10), across, "soft", _FONT)] if across else []
    for at, name in enumerate(columns):
        if at % step == 0:
            shapes.append(_column(name, left + each * (at + 0.5), top, flat))
    skip = max(1, -(-14 // max(1, int(high))))
    tips = len(rows) * len(columns) <= _MOST_TIPS
    for down, name in enumerate(rows):
        y = top + high * down
        if down % skip == 0:
            text = cut(name, left - 12, _FONT)
            shapes.append(Text((left - 8, y + high / 2), text, "ink", _FONT, "end", tip=name))
        for at, cell in enumerate(cells[down]):
            told = f"{name}, {columns[at]}: {cell.told or cell.text}" if tips else ""
            shapes += _cell(cell, left + each * at, y, each, high, told)
    return Scene(width, top + high * len(rows) + 8, title, _about(rows, columns), shapes)


def _about(rows: Sequence[str], columns: Sequence[str]) -> str:
    return f"{len(rows)} rows by {len(columns)} columns"


def _column(name: str, x: float, top: float, flat: bool) -> Text:
    if flat:
        return Text((x, top - 12), name, "ink", _FONT, "middle", tip=name)
    return Text((x, top - 8), cut(name, 130, _FONT), "ink", _FONT, "start", turn=45, tip=name)


def _cell(cell: Cell, x: float, y: float, wide_: float, high: float, told: str) -> list[Shape]:
    gap = 1.0 if min(wide_, high) > 6 else 0.0
    back = box(x + gap, y + gap, wide_ - 2 * gap, high - 2 * gap, "quiet", tip=told)
    if cell.tone is None:
        return [back] if not cell.text else [back, _words(cell.text, x, y, wide_, high, "soft")]
    found: list[Shape] = [back]
    if cell.sign is None:
        tone = min(1.0, max(0.0, cell.tone))
        found.append(
            box(x + gap, y + gap, wide_ - 2 * gap, high - 2 * gap, cell.role, alpha=tone, tip=told)
        )
        role = "card" if tone > 0.55 else "ink"
    else:
        side = 14.0 if cell.text and wide(cell.text, _FONT) + 22 <= wide_ else wide_ / 2
        found.append(Mark((x + side, y + high / 2), 5, cell.role, cell.sign, tip=told))
        role = "ink"
        if side < 14.5 and cell.text:
            shift = x + 8
            return [*found, _words(cell.text, shift, y, wide_, high, role)]
        return found
    if cell.text and wide(cell.text, _FONT) + 4 <= wide_ and high >= 15:
        found.append(_words(cell.text, x, y, wide_, high, role, told))
    return found


def _words(
    text: str, x: float, y: float, wide_: float, high: float, role: str, tip: str = ""
) -> Text:
    return Text((x + wide_ / 2, y + high / 2), text, role, _FONT, "middle", tip=tip)
