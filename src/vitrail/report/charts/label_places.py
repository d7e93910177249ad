"""Places for names beside lines, so that none lies on another."""

from __future__ import annotations

from collections.abc import Sequence


def spread_labels(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart, in the order of `wanted` and as near to it as fits low..high.

    Groups of names that would overlap are laid out evenly around their common mean; if all of
    them together do not fit, the gap shrinks.
    """
    if len(wanted) > 1:
        gap = min(gap, (high - low) / (len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[list[int]] = []
    for i in order:
        groups.append([i])
        while len(groups) > 1 and _is_overlapping(groups[-2], groups[-1], wanted, gap, low, high):
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [0.0] * len(wanted)
    for group in groups:
        start = _compute_start(group, wanted, gap, low, high)
        for step, i in enumerate(group):
            places[i] = start + step * gap
    return places


def _compute_start(
    group: list[int], wanted: Sequence[float], gap: float, low: float, high: float
) -> float:
    length = (len(group) - 1) * gap
    middle = sum(wanted[i] for i in group) / len(group)
    return min(max(middle - length / 2, low), high - length)


def _is_overlapping(
    below: list[int], above: list[int], wanted: Sequence[float], gap: float, low: float, high: float
) -> bool:
    top = _compute_start(below, wanted, gap, low, high) + (len(below) - 1) * gap
    return _compute_start(above, wanted, gap, low, high) < top + gap - 1e-12
