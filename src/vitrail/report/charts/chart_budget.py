"""A budget over a lifetime: a row for each run, what was spent before it and what it added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.report.charts.drawing import Drawing, Shape, Text, box, line
from vitrail.report.charts.scale import Scale, choose_ticks, estimate_width, format_tick
from vitrail.report.charts.scale import shorten_text as shorten

_ROW, _FONT, _TOP = 26.0, 12.0, 30.0


@dataclass(frozen=True)
class BudgetStep:
    """A run: what all runs had spent before it and after it, infinite where nothing bounds it."""

    name: str
    before: float
    after: float
    alone: float
    over: bool


def draw_budget(steps: Sequence[BudgetStep], limit: float | None, width: float) -> Drawing:
    """What was spent by which run, and how much is left up to a limit, if there is one."""
    finite = [step.after for step in steps if math.isfinite(step.after)]
    full = 1.06 * max([*finite, limit or 0.0, 1e-3])
    texts = [_describe_step(step) for step in steps]
    names = [step.name for step in steps]
    left = min(max((estimate_width(n, _FONT) for n in names), default=0.0) + 22, 0.3 * width)
    room = max((estimate_width(text, _FONT) for text in texts), default=0.0) + 14
    x = Scale(0, full, left, max(left + 60, width - room))
    bottom = _TOP + _ROW * max(1, len(steps))
    shapes: list[Shape] = []
    for value in choose_ticks(0, full, 4 if width < 500 else 7):
        shapes.append(line((x(value), _TOP - 4), (x(value), bottom), "line"))
        shapes.append(Text((x(value), bottom + 12), format_tick(value), "soft", _FONT, "middle"))
    for at, (step, text) in enumerate(zip(steps, texts, strict=True)):
        shapes += _draw_step(step, text, x, _TOP + _ROW * (at + 0.5), full)
    if limit is not None:
        shapes += _draw_limit(limit, steps, x, bottom, width)
    axis = "epsilon over all runs so far"
    shapes.append(Text(((x.start + x.end) / 2, bottom + 30), axis, "soft", _FONT, "middle"))
    return Drawing(width, bottom + 40, "Spent over a lifetime, by run", _describe(steps), shapes)


def _draw_step(step: BudgetStep, text: str, x: Scale, y: float, full: float) -> list[Shape]:
    name = shorten(step.name, x.start - 16, _FONT)
    shapes: list[Shape] = [Text((x.start - 12, y), name, "ink", _FONT, "end", tip=step.name)]
    before, after = (x(min(full, value)) for value in (step.before, step.after))
    if before > x.start:
        shapes.append(box(x.start, y - 8, before - x.start, 16, "quiet", tip=f"before: {text}"))
        shapes.append(line((x.start, y + 8), (before, y + 8), "axis"))
    bounded = math.isfinite(step.after)
    role = "bad" if not bounded else "c1" if step.over else "c5"
    tip = f"{step.name}: {text}"
    shapes.append(box(before, y - 8, max(2.0, after - before), 16, role, tip=tip))
    shapes.append(Text((x.end + 8, y), text, "ink", _FONT))
    return shapes


def _draw_limit(
    limit: float, steps: Sequence[BudgetStep], x: Scale, bottom: float, width: float
) -> list[Shape]:
    """The limit of the site's policy, and what is left up to it."""
    spent = steps[-1].after if steps else 0.0
    left = f"{max(0.0, limit - spent):.3g} left" if math.isfinite(spent) else "nothing left"
    label = f"limit {limit:g}: {left}"
    anchor = "end" if x(limit) > 0.5 * width else "start"
    return [
        line((x(limit), _TOP - 8), (x(limit), bottom), "ink", 1.6, dash=(5, 3)),
        Text((x(limit), 10), label, "ink", _FONT, anchor),  # type: ignore[arg-type]
    ]


def _describe_step(step: BudgetStep) -> str:
    if not math.isfinite(step.after):
        return "no bound"
    alone = f"{step.after:.3g} ({step.alone:.3g} alone)"
    return alone if step.over else f"{alone}, open: in full"


def _describe(steps: Sequence[BudgetStep]) -> str:
    if not steps:
        return "no run has begun"
    return f"{len(steps)} runs; {_describe_step(steps[-1])} after the last"
