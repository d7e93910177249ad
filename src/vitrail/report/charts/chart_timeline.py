"""What left which site when: sites by rounds, a sign for each, its area the bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.charts.drawing import Drawing, Mark, Shape, Sign, Text, line
from vitrail.report.charts.scale import (
    Scale,
    choose_ticks,
    estimate_width,
    format_bytes,
    format_tick,
    shorten_text,
)

_FONT, _ROW = 12.0, 26.0
_SITES = 40  # more rows than this are summed up in a sentence
_BINS = 48  # signs a row has room for


@dataclass(frozen=True)
class Event:
    """Something that left a site: in a round, or beside the rounds."""

    site: str
    round: int | None
    bytes: float
    kind: str
    formal: bool


def draw_timeline(
    events: Sequence[Event], sites: Sequence[str], title: str, width: float
) -> Drawing:
    """Draw them; many rounds share a sign."""
    shown = list(sites[:_SITES])
    left = min(max((estimate_width(name, _FONT) for name in shown), default=0.0) + 20, 0.3 * width)
    rounds = [e.round for e in events if e.round is not None]
    low, high = (min(rounds), max(rounds)) if rounds else (0, 0)
    has_unrounded = any(e.round is None for e in events)
    end = width - (74.0 if has_unrounded else 26.0)
    x = Scale(low, high, left + 14, end)
    rounds_per_bin = max(1, math.ceil((high - low + 1) / (_BINS if width > 500 else _BINS // 3)))
    sums = _sum_by_bin([e for e in events if e.site in set(shown)], low, rounds_per_bin)
    largest = max((total for total, *_ in sums.values()), default=0.0) or 1.0
    radius = min(10.0, 0.46 * (end - left) / max(1, (high - low) / rounds_per_bin + 1))
    shapes: list[Shape] = []
    bottom = 16 + _ROW * len(shown)
    for at, name in enumerate(shown):
        y = 16 + _ROW * (at + 0.5)
        shapes.append(
            Text((left - 8, y), shorten_text(name, left - 12, _FONT), "ink", _FONT, "end", tip=name)
        )
        shapes.append(line((left + 2, y), (width - 8, y), "line"))
    for (site, bin_, formal), (total, count, first, last) in sums.items():
        y = 16 + _ROW * (shown.index(site) + 0.5)
        size = max(2.0, max(3.0, radius) * math.sqrt(total / largest))
        place = width - 30 if bin_ is None else x(min(high, (first + last) / 2))
        sign: Sign = "triangle" if bin_ is None else ("circle" if formal else "square")
        role = "c3" if formal else "c2"
        tip = _describe_bin(site, bin_, total, count, first, last, formal)
        shapes.append(
            Mark((place, y), max(size, 4.0) if bin_ is None else size, role, sign, tip=tip)
        )
    if rounds:
        shapes += _draw_axis(x, bottom, width)
    if has_unrounded:
        shapes.append(Text((width - 30, bottom + 14), "beside", "soft", _FONT, "middle"))
    undrawn = len(sites) - len(shown)
    about = f"{len(events)} releases of {len(sites)} sites" + (
        f"; {undrawn} sites not drawn" if undrawn else ""
    )
    return Drawing(width, bottom + 46, title, about, shapes)


_Key = tuple[str, int | None, bool]


def _sum_by_bin(
    events: Sequence[Event], low: int, rounds_per_bin: int
) -> dict[_Key, tuple[float, int, int, int]]:
    """Bytes, number, first and last round, by site, bin and guarantee."""
    sums: dict[_Key, tuple[float, int, int, int]] = {}
    for event in events:
        bin_ = None if event.round is None else (event.round - low) // rounds_per_bin
        key = (event.site, bin_, event.formal)
        at = event.round if event.round is not None else 0
        total, count, first, last = sums.get(key, (0.0, 0, at, at))
        sums[key] = (total + event.bytes, count + 1, min(first, at), max(last, at))
    return sums


def _describe_bin(
    site: str, bin_: int | None, total: float, count: int, first: int, last: int, formal: bool
) -> str:
    when = f"round {first}" if first == last else f"rounds {first} to {last}"
    when = f"{count} beside the rounds" if bin_ is None else when
    return f"{site}, {when}: {format_bytes(total)}, {'formal' if formal else 'empirical'}"


def _draw_axis(x: Scale, bottom: float, width: float) -> list[Shape]:
    shapes: list[Shape] = []
    for value in choose_ticks(x.low, x.high, 4 if width < 500 else 10, whole=True):
        shapes.append(Text((x(value), bottom + 14), format_tick(value), "soft", _FONT, "middle"))
    shapes.append(Text(((x.start + x.end) / 2, bottom + 33), "round", "soft", _FONT, "middle"))
    return shapes
