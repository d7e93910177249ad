"""Rows under each other: dots with their intervals, or bars from zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitrail.report.charts.drawing import Drawing, Mark, Shape, Sign, Text, box, line
from vitrail.report.charts.scale import (
    Scale,
    choose_ticks,
    estimate_width,
    format_tick,
    pad_range,
    shorten_text,
)

NumberFormatter = Callable[[float], str]
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


def draw_dots(
    values: Sequence[Dot],
    title: str,
    xlabel: str,
    width: float,
    format_number: NumberFormatter = format_tick,
    zero: float | None = None,
) -> Drawing:
    """A row for each name in order; several dots of one row lie on one line."""
    names = list(dict.fromkeys(dot.row for dot in values))
    kinds = {dot.kind: dot for dot in values if dot.kind}
    left = _compute_left(names, width)
    reach = [v for d in values for v in (d.value, d.low, d.high) if v is not None]
    reach = [v for v in reach if math.isfinite(v)] + ([] if zero is None else [zero])
    low, high = pad_range(reach or [0.0, 1.0])
    x = Scale(low, high, left, width - 24)
    shapes, key_height = _draw_key(list(kinds.values()), width)
    most_dots = max((sum(d.row == name for d in values) for name in names), default=1)
    row_height = max(_ROW, _APART * most_dots + 10)
    top = 14.0 + key_height
    bottom = top + row_height * len(names)
    shapes += _draw_axis(x, top, bottom, xlabel, format_number, width)
    if zero is not None:
        shapes.append(line((x(zero), top - 4), (x(zero), bottom), "axis", 1.5, dash=(3, 3)))
    for at, name in enumerate(names):
        y = top + row_height * (at + 0.5)
        shapes.append(
            Text(
                (left - 12, y), shorten_text(name, left - 16, _FONT), "ink", _FONT, "end", tip=name
            )
        )
        row_dots = [d for d in values if d.row == name and math.isfinite(d.value)]
        for nth, dot in enumerate(row_dots):
            shapes += _draw_dot(dot, x, y + _APART * (nth - (len(row_dots) - 1) / 2), format_number)
    return Drawing(width, bottom + 40, title, f"{len(names)} rows", shapes)


def draw_bars(
    values: Sequence[Bar], title: str, width: float, most: float | None = None
) -> Drawing:
    """A bar for each row; `most` is the full length if it is not that of the largest."""
    left = _compute_left([bar.row for bar in values], width)
    longest = max((estimate_width(bar.text, _FONT) for bar in values), default=0) + 12
    full = most or max((bar.value for bar in values), default=0) or 1.0
    x = Scale(0, full, left, width - longest)
    shapes: list[Shape] = []
    for at, bar in enumerate(values):
        y = 8 + _ROW * (at + 0.5)
        shapes.append(
            Text(
                (left - 12, y),
                shorten_text(bar.row, left - 16, _FONT),
                "ink",
                _FONT,
                "end",
                tip=bar.row,
            )
        )
        shapes.append(box(left, y - 8, x.end - left, 16, "quiet"))
        length = max(1.0, x(min(full, max(0.0, bar.value))) - left)
        shapes.append(box(left, y - 8, length, 16, bar.role, tip=f"{bar.row}: {bar.text}"))
        shapes.append(Text((x.end + 8, y), bar.text, "ink", _FONT))
    return Drawing(width, 16 + _ROW * max(1, len(values)), title, f"{len(values)} rows", shapes)


def _compute_left(names: Sequence[str], width: float) -> float:
    longest = max((estimate_width(name, _FONT) for name in names), default=0.0)
    return min(longest + 22, 0.36 * width)


def _draw_axis(
    x: Scale, top: float, bottom: float, xlabel: str, format_number: NumberFormatter, width: float
) -> list[Shape]:
    shapes: list[Shape] = []
    for value in choose_ticks(x.low, x.high, 4 if width < 500 else 7):
        shapes.append(line((x(value), top - 4), (x(value), bottom), "line"))
        shapes.append(Text((x(value), bottom + 12), format_number(value), "soft", _FONT, "middle"))
    shapes.append(Text(((x.start + x.end) / 2, bottom + 30), xlabel, "soft", _FONT, "middle"))
    return shapes


def _draw_dot(dot: Dot, x: Scale, y: float, format_number: NumberFormatter) -> list[Shape]:
    tip = f"{dot.row}{', ' + dot.kind if dot.kind else ''}: {format_number(dot.value)}"
    shapes: list[Shape] = []
    if dot.low is not None and dot.high is not None:
        tip += f" ({format_number(dot.low)} to {format_number(dot.high)})"
        shapes.append(line((x(dot.low), y), (x(dot.high), y), dot.role, 2.0, alpha=0.65))
    shapes.append(Mark((x(dot.value), y), 5.5, dot.role, dot.sign, tip=tip))
    return shapes


def _draw_key(kinds: Sequence[Dot], width: float) -> tuple[list[Shape], float]:
    """What the signs mean, in as many lines as it takes, and the height of that."""
    shapes: list[Shape] = []
    x, y = 10.0, 12.0
    for dot in kinds:
        name = shorten_text(dot.kind, width - 50, _FONT)
        if x > 10 and x + 11 + estimate_width(name, _FONT) > width - 8:
            x, y = 10.0, y + 18
        shapes.append(Mark((x, y), 5, dot.role, dot.sign))
        shapes.append(Text((x + 11, y), name, "soft", _FONT))
        x += estimate_width(name, _FONT) + 34
    return shapes, y + 10 if kinds else 0.0
