"""Curves over rounds: a line each, names at their ends, the spread as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.curves import spread
from vitrail.report.document.palette import DASHES, SERIES
from vitrail.report.document.scale import Scale, cut, padded, percent, plain, ticks
from vitrail.report.document.scene import Mark, Path, Plot, Point, Scene, Shape, Text, line

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


def lines(
    series: Sequence[Series], title: str, ylabel: str, width: float, shares: bool = True
) -> Scene:
    """Draw them; values from 0 to 1 are read in percent where they are `shares`."""
    drawn = [s for s in series if s.points]
    height = 330.0 if width > 500 else 270.0
    named = [s for s in drawn if not s.faint][:_LABELS]
    small = width < 500
    room = 90.0 if small else 170.0
    values = [v for s in drawn for _, v in s.points]
    values += [v for s in drawn for _, *pair in s.band for v in pair]
    rounds = [r for s in drawn for r, _ in s.points]
    low, high = padded(values)
    share = shares and min(values) >= 0 and max(values) <= 1
    if share:
        low, high = max(0.0, low), min(1.0, high)
    x = Scale(min(rounds), max(rounds), 54.0, width - room)
    y = Scale(low, high, height - 44, 30)
    shapes: list[Shape] = [*_frame(x, y, ylabel, share, small)]
    order = sorted(enumerate(drawn), key=lambda pair: not pair[1].faint)
    for at, one in order:
        shapes += _line(one, at, x, y)
    shapes += _names(named, drawn, x, y, width - room, room)
    if len(rounds) <= _MOST_POINTS:
        shapes += [_hover(s, r, v, x, y, share) for s in drawn for r, v in s.points]
    about = "; ".join(f"{s.name} ends at {_value(s.points[-1][1], share)}" for s in named)
    plot = None
    if x.high > x.low:
        box = (x.start, y.end, x.end, y.start)
        plot = Plot(box, (x.low, x.high), (y.low, y.high), share)
    return Scene(width, height, title, about, shapes, plot)


def _frame(x: Scale, y: Scale, ylabel: str, share: bool, small: bool) -> list[Shape]:
    found: list[Shape] = [Text((4, 12), ylabel, "soft", _FONT)]
    for value in ticks(y.low, y.high, 5):
        ends = (x.start - 8, y(value)), (x.end + 6, y(value))
        found.append(line(*ends, "line", zoom="y-tick"))
        text = percent(value, 0) if share and y.high - y.low > 0.04 else plain(value)
        place = (x.start - 12, y(value))
        found.append(Text(place, text, "soft", _FONT, "end", zoom="y-tick"))
    for value in ticks(x.low, x.high, 4 if small else 8, whole=True):
        ends = (x(value), y.start + 4), (x(value), y.start + 9)
        found.append(line(*ends, "axis", zoom="x-tick"))
        place = (x(value), y.start + 20)
        found.append(Text(place, plain(value), "soft", _FONT, "middle", zoom="x-tick"))
    found.append(line((x.start - 8, y.start + 4), (x.end + 6, y.start + 4), "axis"))
    found.append(Text(((x.start + x.end) / 2, y.start + 37), "round", "soft", _FONT, "middle"))
    return found


def _line(one: Series, at: int, x: Scale, y: Scale) -> list[Shape]:
    role = "soft" if one.faint else SERIES[at % len(SERIES)]
    found: list[Shape] = []
    if len(one.band) > 1:
        up: tuple[Point, ...] = tuple((x(r), y(high)) for r, _, high in one.band)
        down: tuple[Point, ...] = tuple((x(r), y(low)) for r, low, _ in reversed(one.band))
        found.append(Path(up + down, fill=role, alpha=0.13, series=one.name, zoom="area"))
    points = tuple((x(r), y(v)) for r, v in one.points)
    if len(points) > 1:
        dash = () if one.faint or one.band else DASHES[at % len(DASHES)]
        width, alpha = (1.2, 0.45) if one.faint else (3.4 if one.band else 1.9, 1.0)
        found.append(Path(points, role, width, dash, alpha=alpha, series=one.name, zoom="area"))
    else:
        found.append(Mark(points[0], 4, role, series=one.name, zoom="point"))
    return found


def _names(
    named: Sequence[Series], drawn: Sequence[Series], x: Scale, y: Scale, left: float, room: float
) -> list[Shape]:
    ends = [y(s.points[-1][1]) for s in named]
    places = spread(ends, 16.0, y.end, y.start)
    found: list[Shape] = []
    for one, end, place in zip(named, ends, places, strict=True):
        role = SERIES[drawn.index(one) % len(SERIES)]
        last = x(one.points[-1][0])
        bend = (left + 12, place)
        way = Path(((last, end), bend), role, alpha=0.7, series=one.name, zoom="whole")
        found += [way, Path((bend, (left + 20, place)), role, alpha=0.7, series=one.name)]
        name = cut(one.name, room - 26, _FONT)
        found.append(Text((left + 24, place), name, "ink", _FONT, series=one.name, tip=one.name))
    return found


def _hover(one: Series, round_: int, value: float, x: Scale, y: Scale, share: bool) -> Mark:
    told = f"{one.name}, round {round_}: {_value(value, share)}"
    place = (x(round_), y(value))
    return Mark(place, 7, "ink", alpha=0, series=one.name, tip=told, zoom="point")


def _value(value: float, share: bool) -> str:
    return percent(value) if share else plain(round(value, 4))
