"""Curves over rounds: a line each, names at their ends, the spread as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    points: tuple[tuple[int, float], ...]
    faint: bool = False
    band: tuple[tuple[int, float, float], ...] = ()


def draw_lines(
    series: Sequence[Series], title: str, ylabel: str, width: float, shares: bool = True
) -> Drawing:
    """Draw them; values from 0 to 1 are read in percent where they are `shares`."""
    drawn = [s for s in series if s.points]
    height = 330.0 if width > 500 else 270.0
    named = [s for s in drawn if not s.faint][:_LABELS]
    small = width < 500
    room = 100.0 if small else 184.0
    values = [v for s in drawn for _, v in s.points]
    values += [v for s in drawn for _, *pair in s.band for v in pair]
    rounds = [r for s in drawn for r, _ in s.points]
    low, high = pad_range(values)
    share = shares and min(values) >= 0 and max(values) <= 1
    if share:
        low, high = max(0.0, low), min(1.0, high)
    x = Scale(min(rounds), max(rounds), 54.0, width - room)
    y = Scale(low, high, height - 44, 30)
    shapes: list[Shape] = [*_draw_frame(x, y, ylabel, share, small)]
    order = sorted(enumerate(drawn), key=lambda pair: not pair[1].faint)
    for at, curve in order:
        shapes += _draw_line(curve, at, x, y)
    shapes += _draw_names(named, drawn, x, y, width - room, room)
    if len(rounds) <= _MOST_POINTS:
        shapes += [_draw_hover_mark(s, r, v, x, y, share) for s in drawn for r, v in s.points]
    about = "; ".join(f"{s.name} ends at {_format_value(s.points[-1][1], share)}" for s in named)
    plot = None
    if x.high > x.low:
        box = (x.start, y.end, x.end, y.start)
        plot = Plot(box, (x.low, x.high), (y.low, y.high), share)
    return Drawing(width, height, title, about, shapes, plot)


def _draw_frame(x: Scale, y: Scale, ylabel: str, share: bool, small: bool) -> list[Shape]:
    shapes: list[Shape] = [Text((4, 12), ylabel, "soft", _FONT)]
    for value in choose_ticks(y.low, y.high, 5):
        ends = (x.start - 8, y(value)), (x.end + 6, y(value))
        shapes.append(line(*ends, "line", zoom="y-tick"))
        text = format_percent(value, 0) if share and y.high - y.low > 0.04 else format_tick(value)
        place = (x.start - 12, y(value))
        shapes.append(Text(place, text, "soft", _FONT, "end", zoom="y-tick"))
    for value in choose_ticks(x.low, x.high, 4 if small else 8, whole=True):
        ends = (x(value), y.start + 4), (x(value), y.start + 9)
        shapes.append(line(*ends, "axis", zoom="x-tick"))
        place = (x(value), y.start + 20)
        shapes.append(Text(place, format_tick(value), "soft", _FONT, "middle", zoom="x-tick"))
    shapes.append(line((x.start - 8, y.start + 4), (x.end + 6, y.start + 4), "axis"))
    shapes.append(Text(((x.start + x.end) / 2, y.start + 37), "round", "soft", _FONT, "middle"))
    return shapes


def _draw_line(curve: Series, at: int, x: Scale, y: Scale) -> list[Shape]:
    role = "soft" if curve.faint else SERIES[at % len(SERIES)]
    shapes: list[Shape] = []
    if len(curve.band) > 1:
        up: tuple[Point, ...] = tuple((x(r), y(high)) for r, _, high in curve.band)
        down: tuple[Point, ...] = tuple((x(r), y(low)) for r, low, _ in reversed(curve.band))
        shapes.append(Path(up + down, fill=role, alpha=0.13, series=curve.name, zoom="area"))
    points = tuple((x(r), y(v)) for r, v in curve.points)
    if len(points) > 1:
        dash = () if curve.faint or curve.band else DASHES[at % len(DASHES)]
        width, alpha = (1.2, 0.45) if curve.faint else (3.4 if curve.band else 1.9, 1.0)
        shapes.append(Path(points, role, width, dash, alpha=alpha, series=curve.name, zoom="area"))
    else:
        shapes.append(Mark(points[0], 4, role, series=curve.name, zoom="point"))
    return shapes


def _draw_names(
    named: Sequence[Series], drawn: Sequence[Series], x: Scale, y: Scale, left: float, room: float
) -> list[Shape]:
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
        dash = () if curve.band else DASHES[drawn.index(curve) % len(DASHES)]
        shapes.append(Path(sample, role, 3.4 if curve.band else 1.9, dash, series=curve.name))
        name = shorten_text(curve.name, room - 38, _FONT)
        shapes.append(
            Text((left + 35, place), name, "ink", _FONT, series=curve.name, tip=curve.name)
        )
    return shapes


def _draw_hover_mark(
    curve: Series, round_: int, value: float, x: Scale, y: Scale, share: bool
) -> Mark:
    tip = f"{curve.name}, round {round_}: {_format_value(value, share)}"
    place = (x(round_), y(value))
    return Mark(place, 7, "ink", alpha=0, series=curve.name, tip=tip, zoom="point")


def _format_value(value: float, share: bool) -> str:
    return format_percent(value) if share else format_tick(round(value, 4))
