"""A picture of the sites' agreement: classes by consensus, and who is far from the mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vitrail.audit.consensus import Agreement
from vitrail.report.charts.drawing import Drawing, Mark, Shape, Text, box, line
from vitrail.report.charts.scale import Scale, choose_ticks, format_tick, shorten_text
from vitrail.report.write_picture import write_drawing

_MOST_NAMES = 80
_LEFT, _MARKS, _CELL, _TOP = 190.0, 300.0, 26.0, 110.0


def draw_consensus(agreement: Agreement, path: Path) -> None:
    """Draw it as PNG or SVG: marks of consensus and eigengap, beside them a map of distances."""
    write_drawing(make_consensus(agreement), path)


def describe_consensus(agreement: Agreement) -> list[str]:
    """The classes with the most and the least agreement, and who stands apart most, in words."""
    order = np.argsort(-agreement.consensus, kind="stable")
    best, worst = int(order[0]), int(order[-1])
    lines = [
        f"agreed most: {agreement.classes[best]} (consensus {agreement.consensus[best]:.2f})",
        f"agreed least: {agreement.classes[worst]} (consensus {agreement.consensus[worst]:.2f}, "
        f"eigengap {agreement.eigengap[worst]:.2f})",
    ]
    deviations = agreement.rank_deviations()
    if not deviations:
        return [*lines, "the server saw no site's own subspaces, so nobody's distance is known"]
    first = deviations[0]
    return [
        *lines,
        f"furthest from the others: {first.site} on {first.label} (distance "
        f"{first.distance:.2f} of {agreement.largest:.2f}, {first.excess:.1f} robust SDs over the "
        "median site)",
    ]


def make_consensus(agreement: Agreement) -> Drawing:
    """One row for each class, the most agreed first."""
    order = np.argsort(-agreement.consensus, kind="stable")
    high = min(22.0, max(6.0, 1800.0 / len(order)))
    bottom = _TOP + high * len(order)
    shapes = [*_draw_marks(agreement, order, high, bottom)]
    width = _LEFT + _MARKS + 20
    if agreement.distance is not None:
        shapes += _draw_distances(agreement, order, high, bottom)
        width += _CELL * len(agreement.sites) + 60
    title = f"Agreement of the sites, round {agreement.round}"
    shapes.append(Text((8, 14), title, "ink", 14, bold=True))
    return Drawing(max(width, 560.0), bottom + 56, title, f"{len(order)} classes", shapes)


def _draw_marks(agreement: Agreement, order: Any, high: float, bottom: float) -> list[Shape]:
    """Consensus as a dot and the eigengap as a square, from the least value there is to 1."""
    least = float(min(agreement.consensus.min(), agreement.eigengap.min()))
    x = Scale(max(0.0, least - 0.05), 1.02, _LEFT, _LEFT + _MARKS)
    shapes: list[Shape] = [
        Mark((_LEFT, 38), 5, "c1"), Text((_LEFT + 11, 38), "consensus", "soft", 12),
        Mark((_LEFT + 110, 38), 5, "c2", "square"), Text((_LEFT + 121, 38), "eigengap", "soft", 12),
    ]  # fmt: skip
    for value in choose_ticks(x.low, 1.0, 5):
        shapes.append(line((x(value), _TOP), (x(value), bottom), "line"))
        shapes.append(Text((x(value), bottom + 14), format_tick(value), "soft", 12, "middle"))
    step = -(-len(order) // _MOST_NAMES)
    for down, label in enumerate(order):
        y = _TOP + high * (down + 0.5)
        if down % step == 0:
            name = shorten_text(agreement.classes[label], _LEFT - 16, 12)
            shapes.append(Text((_LEFT - 10, y), name, "ink", 12, "end"))
        radius = min(5.0, 0.45 * high)
        shapes.append(Mark((x(float(agreement.eigengap[label])), y), radius, "c2", "square"))
        shapes.append(Mark((x(float(agreement.consensus[label])), y), radius, "c1"))
    return shapes


def _draw_distances(agreement: Agreement, order: Any, high: float, bottom: float) -> list[Shape]:
    """Geodesic distances, dark where a site is far; a mark where it never took part."""
    assert agreement.distance is not None
    left = _LEFT + _MARKS + 24
    values = agreement.distance[:, order].T
    known = values[np.isfinite(values)]
    most = float(known.max()) if known.size and known.max() > 0 else 1.0
    shapes: list[Shape] = [
        Text((left + _CELL * (at + 0.5), _TOP - 8), shorten_text(name, 100, 12), "ink", 12, turn=45)
        for at, name in enumerate(agreement.sites)
    ]
    for down, row in enumerate(values):
        for at, value in enumerate(row):
            place = (left + _CELL * at, _TOP + high * down, _CELL - 1, high - 1)
            shapes.append(box(*place, "quiet"))
            if np.isfinite(value):
                shapes.append(box(*place, "ink", alpha=0.9 * float(value) / most))
            else:
                middle = (place[0] + _CELL / 2, place[1] + high / 2)
                shapes.append(Mark(middle, min(4.0, 0.4 * high), "c2", "diamond"))
    words = f"distance from the mean, up to {most:.2f} (at most {agreement.largest:.2f})"
    shapes.append(Text((left, bottom + 34), words, "soft", 12))
    return shapes
