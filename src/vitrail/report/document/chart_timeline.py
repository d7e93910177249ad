"""What left which site when: sites by rounds, a sign for each, its area the bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.document.scale import Scale, amount, cut, plain, ticks, wide
from vitrail.report.document.scene import Mark, Scene, Shape, Sign, Text, line

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


def timeline(events: Sequence[Event], sites: Sequence[str], title: str, width: float) -> Scene:
    """Draw them; many rounds share a sign."""
    shown = list(sites[:_SITES])
    left = min(max((wide(name, _FONT) for name in shown), default=0.0) + 20, 0.3 * width)
    rounds = [e.round for e in events if e.round is not None]
    low, high = (min(rounds), max(rounds)) if rounds else (0, 0)
    beside = any(e.round is None for e in events)
    end = width - (74.0 if beside else 26.0)
    x = Scale(low, high, left + 14, end)
    per = max(1, math.ceil((high - low + 1) / (_BINS if width > 500 else _BINS // 3)))
    sums = _sums([e for e in events if e.site in set(shown)], low, per)
    largest = max((total for total, *_ in sums.values()), default=0.0) or 1.0
    radius = min(10.0, 0.46 * (end - left) / max(1, (high - low) / per + 1))
    shapes: list[Shape] = []
    bottom = 16 + _ROW * len(shown)
    for at, name in enumerate(shown):
        y = 16 + _ROW * (at + 0.5)
        shapes.append(
            Text((left - 8, y), cut(name, left - 12, _FONT), "ink", _FONT, "end", tip=name)
        )
        shapes.append(line((left + 2, y), (width - 8, y), "line"))
    for (site, bin_, formal), (total, count, first, last) in sums.items():
        y = 16 + _ROW * (shown.index(site) + 0.5)
        size = max(2.0, max(3.0, radius) * math.sqrt(total / largest))
        place = width - 30 if bin_ is None else x(min(high, (first + last) / 2))
        sign: Sign = "triangle" if bin_ is None else ("circle" if formal else "square")
        role = "c3" if formal else "c2"
        told = _told(site, bin_, total, count, first, last, formal)
        shapes.append(
            Mark((place, y), max(size, 4.0) if bin_ is None else size, role, sign, tip=told)
        )
    if rounds:
        shapes += _axis(x, bottom, width)
    if beside:
        shapes.append(Text((width - 30, bottom + 14), "beside", "soft", _FONT, "middle"))
    more = len(sites) - len(shown)
    about = f"{len(events)} releases of {len(sites)} sites" + (
        f"; {more} sites not drawn" if more else ""
    )
    return Scene(width, bottom + 46, title, about, shapes)


_Key = tuple[str, int | None, bool]


def _sums(events: Sequence[Event], low: int, per: int) -> dict[_Key, tuple[float, int, int, int]]:
    """Bytes, number, first and last round, by site, bin and guarantee."""
    found: dict[_Key, tuple[float, int, int, int]] = {}
    for event in events:
        bin_ = None if event.round is None else (event.round - low) // per
        key = (event.site, bin_, event.formal)
        at = event.round if event.round is not None else 0
        total, count, first, last = found.get(key, (0.0, 0, at, at))
        found[key] = (total + event.bytes, count + 1, min(first, at), max(last, at))
    return found


def _told(
    site: str, bin_: int | None, total: float, count: int, first: int, last: int, formal: bool
) -> str:
    when = f"round {first}" if first == last else f"rounds {first} to {last}"
    when = f"{count} beside the rounds" if bin_ is None else when
    return f"{site}, {when}: {amount(total)}, {'formal' if formal else 'empirical'}"


def _axis(x: Scale, bottom: float, width: float) -> list[Shape]:
    found: list[Shape] = []
    for value in ticks(x.low, x.high, 4 if width < 500 else 10, whole=True):
        found.append(Text((x(value), bottom + 14), plain(value), "soft", _FONT, "middle"))
    found.append(Text(((x.start + x.end) / 2, bottom + 33), "round", "soft", _FONT, "middle"))
    return found
