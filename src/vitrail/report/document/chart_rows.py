"""Rows under each other: dots with their intervals, or bars from zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitrail.report.document.scale import Scale, cut, padded, plain, ticks, wide
from vitrail.report.document.scene import Mark, Scene, Shape, Sign, Text, box, line

Words = Callable[[float], str]
_ROW, _FONT = 26.0, 12.0
_APART = 9.0  # dots of one row, under each other


@dataclass(frozen=True)
class Dot:
    """A value of a row, with an interval if it has one."""

    row: str
    value: float
    low: float | None = None
    high: float | None = None
    role: str = "c1"
    sign: Sign = "circle"
    kind: str = ""


@dataclass(frozen=True)
class Bar:
    """A length from zero, with the text at its end."""

    row: str
    value: float
    text: str
    role: str = "c1"


def dots(
    values: Sequence[Dot],
    title: str,
    xlabel: str,
    width: float,
    words: Words = plain,
    zero: float | None = None,
) -> Scene:
    """A row for each name in order; several dots of one row lie on one line."""
    names = list(dict.fromkeys(dot.row for dot in values))
    kinds = {dot.kind: dot for dot in values if dot.kind}
    left = _left(names, width)
    reach = [v for d in values for v in (d.value, d.low, d.high) if v is not None]
    reach = [v for v in reach if math.isfinite(v)] + ([] if zero is None else [zero])
    low, high = padded(reach or [0.0, 1.0])
    x = Scale(low, high, left, width - 24)
    shapes, used = _key(list(kinds.values()), width)
    most = max((sum(d.row == name for d in values) for name in names), default=1)
    row = max(_ROW, _APART * most + 10)
    top = 14.0 + used
    bottom = top + row * len(names)
    shapes += _axis(x, top, bottom, xlabel, words, width)
    if zero is not None:
        shapes.append(line((x(zero), top - 4), (x(zero), bottom), "axis", 1.5, dash=(3, 3)))
    for at, name in enumerate(names):
        y = top + row * (at + 0.5)
        shapes.append(
            Text((left - 12, y), cut(name, left - 16, _FONT), "ink", _FONT, "end", tip=name)
        )
        mine = [d for d in values if d.row == name and math.isfinite(d.value)]
        for nth, dot in enumerate(mine):
            shapes += _dot(dot, x, y + _APART * (nth - (len(mine) - 1) / 2), words)
    return Scene(width, bottom + 40, title, f"{len(names)} rows", shapes)


def bars(values: Sequence[Bar], title: str, width: float, most: float | None = None) -> Scene:
    """A bar for each row; `most` is the full length if it is not that of the largest."""
    left = _left([bar.row for bar in values], width)
    longest = max((wide(bar.text, _FONT) for bar in values), default=0) + 12
    full = most or max((bar.value for bar in values), default=0) or 1.0
    x = Scale(0, full, left, width - longest)
    shapes: list[Shape] = []
    for at, bar in enumerate(values):
        y = 8 + _ROW * (at + 0.5)
        shapes.append(
            Text((left - 12, y), cut(bar.row, left - 16, _FONT), "ink", _FONT, "end", tip=bar.row)
        )
        shapes.append(box(left, y - 8, x.end - left, 16, "quiet"))
        long = max(1.0, x(min(full, max(0.0, bar.value))) - left)
        shapes.append(box(left, y - 8, long, 16, bar.role, tip=f"{bar.row}: {bar.text}"))
        shapes.append(Text((x.end + 8, y), bar.text, "ink", _FONT))
    return Scene(width, 16 + _ROW * max(1, len(values)), title, f"{len(values)} rows", shapes)


def _left(names: Sequence[str], width: float) -> float:
    longest = max((wide(name, _FONT) for name in names), default=0.0)
    return min(longest + 22, 0.36 * width)


def _axis(
    x: Scale, top: float, bottom: float, xlabel: str, words: Words, width: float
) -> list[Shape]:
    found: list[Shape] = []
    for value in ticks(x.low, x.high, 4 if width < 500 else 7):
        found.append(line((x(value), top - 4), (x(value), bottom), "line"))
        found.append(Text((x(value), bottom + 12), words(value), "soft", _FONT, "middle"))
    found.append(Text(((x.start + x.end) / 2, bottom + 30), xlabel, "soft", _FONT, "middle"))
    return found


def _dot(dot: Dot, x: Scale, y: float, words: Words) -> list[Shape]:
    told = f"{dot.row}{', ' + dot.kind if dot.kind else ''}: {words(dot.value)}"
    found: list[Shape] = []
    if dot.low is not None and dot.high is not None:
        told += f" ({words(dot.low)} to {words(dot.high)})"
        found.append(line((x(dot.low), y), (x(dot.high), y), dot.role, 2.0, alpha=0.65))
    found.append(Mark((x(dot.value), y), 5.5, dot.role, dot.sign, tip=told))
    return found


def _key(kinds: Sequence[Dot], width: float) -> tuple[list[Shape], float]:
    """What the signs mean, in as many lines as it takes, and the height of that."""
    found: list[Shape] = []
    x, y = 10.0, 12.0
    for dot in kinds:
        name = cut(dot.kind, width - 50, _FONT)
        if x > 10 and x + 11 + wide(name, _FONT) > width - 8:
            x, y = 10.0, y + 18
        found.append(Mark((x, y), 5, dot.role, dot.sign))
        found.append(Text((x + 11, y), name, "soft", _FONT))
        x += wide(name, _FONT) + 34
    return found, y + 10 if kinds else 0.0
