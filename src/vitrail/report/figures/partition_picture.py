"""A picture of a partition: which site has how many images of which class."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.data.partition.partition import Partition
from vitrail.report.charts.chart_matrix import Cell, draw_matrix, place_rows
from vitrail.report.charts.drawing import Drawing, Shape, Text, box
from vitrail.report.charts.scale import Scale, format_count
from vitrail.report.write_picture import write_drawing

Ints = npt.NDArray[np.int64]
_TOTALS = 220.0  # units for the bars at the side
_MOST_LABELS = 60  # more words than this along an axis cannot be read


def draw_partition(
    partition: Partition, labels: Ints, classes: tuple[str, ...], path: Path
) -> None:
    """Draw a partition as PNG or SVG; see `make_counts`."""
    sites = partition.sites
    train = np.array([np.bincount(labels[s.train], minlength=len(classes)) for s in sites])
    test = np.array([len(s.test) for s in sites])
    names = tuple(s.name for s in sites)
    write_drawing(make_counts(names, train, test, classes, len(partition.server_test)), path)


def make_counts(
    sites: tuple[str, ...], train: Ints, test: Ints, classes: tuple[str, ...], server_test: int
) -> Drawing:
    """Sites by classes, toned by training images on a log scale, with totals at the side.

    `train` counts images by site and class, `test` by site.
    """
    most = math.log1p(max(int(train.max()), 2))
    cells = [
        [
            Cell(0.15 + 0.75 * math.log1p(count) / most if count else None, _write_count(count))
            for count in line.tolist()
        ]
        for line in train
    ]
    width = min(max(44.0 * len(classes), 260.0), 1000.0) + 180
    held = f", {server_test:,} test images at the server" if server_test else ""
    title = f"{format_count(len(sites), 'site')}, {len(classes)} classes{held}"
    chart = draw_matrix(sites, classes, cells, title, width, "training images by class")
    place = place_rows(sites, classes, width)
    totals = _draw_totals(train.sum(axis=1).tolist(), test.tolist(), width, place)
    head = Text((8, chart.height + 14), title, "ink", 13, bold=True)
    return Drawing(width + _TOTALS, chart.height + 28, title, "", [*chart.shapes, *totals, head])


def _write_count(count: int) -> str:
    if not count:
        return ""
    return f"{count}" if count < 10_000 else f"{count / 1000:.0f}k"


def _draw_totals(
    train: list[int], test: list[int], left: float, place: tuple[float, float]
) -> list[Shape]:
    """Bars of train and test images, one line for each site."""
    top, high = place
    longest = max((a + b for a, b in zip(train, test)), default=1) or 1
    x = Scale(0, longest, left, left + _TOTALS - 96)
    key = max(8.0, top - 12)
    shapes: list[Shape] = [
        box(left, key - 5, 10, 10, "c1"), Text((left + 15, key), "train", "soft", 12),
        box(left + 62, key - 5, 10, 10, "c5"), Text((left + 77, key), "test", "soft", 12),
    ]  # fmt: skip
    for at, (a, b) in enumerate(zip(train, test)):
        y = top + high * at
        thick = max(1.0, 0.72 * high)
        shapes.append(box(left, y + 0.14 * high, x(a) - left, thick, "c1"))
        shapes.append(box(x(a), y + 0.14 * high, x(a + b) - x(a), thick, "c5"))
        if len(train) <= _MOST_LABELS:
            words = f"{a:,} + {b:,}"
            shapes.append(Text((x(a + b) + 6, y + high / 2), words, "soft", 12))
    return shapes
