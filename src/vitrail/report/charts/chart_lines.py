"""Curves over rounds: a line each, names at their ends, the spread as a band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitrail.report.charts.drawing import Drawing, Mark, Path, Plot, Point, Shape, Text, line
from vitrail.report.charts.label_places import spread_labels
from vitrail.report.charts.palette import DASHES, SERIES
from vitrail.report.charts.scale import (
    Scale,
    choose_ticks,
    format_percent,
    format_tick,
    pad_range,
    shorten_text,
)

_MOST_POINTS = 3000  # places to hover over in one figure
_LABELS = 12  # lines beyond this many have no name at their end
_FONT = 12.0


@dataclass(frozen=True)
class Series:
    """One line; `faint` ones are context. `band` is (round, low, high)."""

    name: str
    points: tuple[tuple[float, float], ...]
    faint: bool = False
    band: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Across:
    """The axis that lines run along: rounds, or steps that multiply, with a tick at each."""

    label: str = "round"
    log: bool = False
    ticks: tuple[float, ...] = ()
    room: float = 184.0  # for names, right of the lines
    compares: bool = False  # lines stand for methods: each is named, and dashed in its own way

    def measure(self, value: float) -> float:
        """Where a value lies along the axis."""
        return math.log(value) if self.log else value

    def place(self, series: Series) -> Series:
        """A line in the units of the axis."""
        if not self.log:
            return series
        points = tuple((self.measure(r), v) for r, v in series.points)
        band = tuple((self.measure(r), low, high) for r, low, high in series.band)
        return replace(series, points=points, band=band)


ROUNDS = Across()


def draw_lines(
    series: Sequence[Series],
    title: str,
    ylabel: str,
    width: float,
    shares: bool = True,
    axis: Across = ROUNDS,
) -> Drawing:
    """Draw them; values from 0 to 1 are read in percent where they are `shares`."""
    drawn = [s for s in series if s.points]
    named = [s for s in drawn if not s.faint]
    named = named if axis.compares else named[:_LABELS]
    height = max(330.0 if width > 500 else 270.0, 90 + 16.0 * len(named))
    small = width < 500
    room = 100.0 if small else axis.room
    values = [v for s in drawn for _, v in s.points]
    values += [v for s in drawn for _, *pair in s.band for v in pair]
    drawn, named = ([axis.place(s) for s in group] for group in (drawn, named))
    rounds = [r for s in drawn for r, _ in s.points]
    low, high = pad_range(values)
    share = shares and min(values) >= 0 and max(values) <= 1
    if share:
        low, high = max(0.0, low), min(1.0, high)
    x = Scale(min(rounds), max(rounds), 54.0, width - room)
    y = Scale(low, high, height - 44, 30)
    shapes: list[Shape] = [*_draw_frame(x, y, ylabel, share, small, axis)]
    order = sorted(enumerate(drawn), key=lambda pair: not pair[1].faint)
    for at, curve in order:
        shapes += _draw_line(curve, at, x, y, axis.compares)
    shapes += _draw_names(named, drawn, x, y, (width - room, room), axis.compares)
    if len(rounds) <= _MOST_POINTS:
        shapes += [_draw_hover_mark(s, r, v, x, y, share, axis) for s in drawn for r, v in s.points]
    about = "; ".join(f"{s.name} ends at {_format_value(s.points[-1][1], share)}" for s in named)
    plot = None
    if x.high > x.low and not axis.log:
        box = (x.start, y.end, x.end, y.start)
        plot = Plot(box, (x.low, x.high), (y.low, y.high), share)
    return Drawing(width, height, title, about, shapes, plot)


def _draw_frame(
    x: Scale, y: Scale, ylabel: str, share: bool, small: bool, axis: Across
) -> list[Shape]:
    shapes: list[Shape] = [Text((4, 12), ylabel, "soft", _FONT)]
    for value in choose_ticks(y.low, y.high, 5):
        ends = (x.start - 8, y(value)), (x.end + 6, y(value))
        shapes.append(line(*ends, "line", zoom="y-tick"))
        text = format_percent(value, 0) if share and y.high - y.low > 0.04 else format_tick(value)
        place = (x.start - 12, y(value))
        shapes.append(Text(place, text, "soft", _FONT, "end", zoom="y-tick"))
    for value in axis.ticks or choose_ticks(x.low, x.high, 4 if small else 8, whole=True):
        at = x(axis.measure(value))
        shapes.append(line((at, y.start + 4), (at, y.start + 9), "axis", zoom="x-tick"))
        words = f"{value:g}" if axis.ticks else format_tick(value)
        shapes.append(Text((at, y.start + 20), words, "soft", _FONT, "middle", zoom="x-tick"))
    shapes.append(line((x.start - 8, y.start + 4), (x.end + 6, y.start + 4), "axis"))
    shapes.append(Text(((x.start + x.end) / 2, y.start + 37), axis.label, "soft", _FONT, "middle"))
    return shapes


def _choose_stroke(curve: Series, at: int, compares: bool) -> tuple[float, tuple[float, ...]]:
    """The width and the dashes of a line."""
    if curve.band and not compares:
        return 3.4, ()
    return 1.9, DASHES[at % len(DASHES)]


def _draw_line(curve: Series, at: int, x: Scale, y: Scale, compares: bool) -> list[Shape]:
    role = "soft" if curve.faint else SERIES[at % len(SERIES)]
    shapes: list[Shape] = []
    if len(curve.band) > 1:
        up: tuple[Point, ...] = tuple((x(r), y(high)) for r, _, high in curve.band)
        down: tuple[Point, ...] = tuple((x(r), y(low)) for r, low, _ in reversed(curve.band))
        shapes.append(Path(up + down, fill=role, alpha=0.13, series=curve.name, zoom="area"))
    points = tuple((x(r), y(v)) for r, v in curve.points)
    if len(points) > 1:
        width, dash = (1.2, ()) if curve.faint else _choose_stroke(curve, at, compares)
        alpha = 0.45 if curve.faint else 1.0
        shapes.append(Path(points, role, width, dash, alpha=alpha, series=curve.name, zoom="area"))
    else:
        shapes.append(Mark(points[0], 4, role, series=curve.name, zoom="point"))
    return shapes


def _draw_names(
    named: Sequence[Series],
    drawn: Sequence[Series],
    x: Scale,
    y: Scale,
    margin: tuple[float, float],
    compares: bool,
) -> list[Shape]:
    left, room = margin
    ends = [y(s.points[-1][1]) for s in named]
    places = spread_labels(ends, 16.0, y.end, y.start)
    shapes: list[Shape] = []
    for curve, end, place in zip(named, ends, places, strict=True):
        role = SERIES[drawn.index(curve) % len(SERIES)]
        shapes.append(Mark((x(curve.points[-1][0]), end), 3, role, series=curve.name, zoom="point"))
        # Outside the axes and in no line's color: what leads to a name is not data.
        leader = ((left + 8, end), (left + 15, place))
        shapes.append(Path(leader, "axis", dash=(1.5, 2), series=curve.name, zoom="whole"))
        sample = ((left + 17, place), (left + 31, place))
        width, dash = _choose_stroke(curve, drawn.index(curve), compares)
        shapes.append(Path(sample, role, width, dash, series=curve.name))
        name = shorten_text(curve.name, room - 38, _FONT)
        shapes.append(
            Text((left + 35, place), name, "ink", _FONT, series=curve.name, tip=curve.name)
        )
    return shapes


def _draw_hover_mark(
    curve: Series, round_: float, value: float, x: Scale, y: Scale, share: bool, axis: Across
) -> Mark:
    where = f"{round_ if not axis.log else math.exp(round_):g}"
    tip = f"{curve.name}, {axis.label} {where}: {_format_value(value, share)}"
    place = (x(round_), y(value))
    return Mark(place, 7, "ink", alpha=0, series=curve.name, tip=tip, zoom="point")


def _format_value(value: float, share: bool) -> str:
    return format_percent(value) if share else format_tick(round(value, 4))
