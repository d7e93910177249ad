"""Calibration: how often the model is right when it says how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.metrics.classification import CALIBRATION_BINS, Floats, Integers
from vitrail.metrics.resampled import assign_bins
from vitrail.report.charts.drawing import Drawing, Mark, Shape, Text, box, line
from vitrail.report.charts.scale import Scale, format_tick
from vitrail.report.write_picture import write_drawing


@dataclass(frozen=True)
class Bin:
    """The examples whose largest probability lies in (low, high]."""

    low: float
    high: float
    images: int
    confidence: float | None
    accuracy: float | None


def compute_reliability(probabilities: Floats, labels: Integers) -> tuple[Bin, ...]:
    """Mean confidence and accuracy in equal bins of the largest probability."""
    place = assign_bins(probabilities)
    top = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, CALIBRATION_BINS + 1).tolist()
    bins = []
    for i in range(CALIBRATION_BINS):
        in_bin = place == i
        count = int(in_bin.sum())
        sure = float(top[in_bin].mean()) if count else None
        hits = float(right[in_bin].mean()) if count else None
        bins.append(Bin(edges[i], edges[i + 1], count, sure, hits))
    return tuple(bins)


def draw_reliability(bins: Sequence[Bin], ece: float | None, path: Path) -> None:
    """Draw accuracy against confidence, with the number of images below, into a PNG or SVG."""
    write_drawing(make_reliability(bins, ece), path)


def make_reliability(bins: Sequence[Bin], ece: float | None) -> Drawing:
    """A bar is what came of it, a dot what the model claimed: between them lies the error."""
    x, y = Scale(0, 1, 56, 456), Scale(0, 1, 400, 64)
    used = [b for b in bins if b.confidence is not None and b.accuracy is not None]
    most = max((b.images for b in used), default=1)
    counts = Scale(0, most, 500, 430)
    title = "Calibration" if ece is None else f"Calibration (ECE {ece:.3f})"
    shapes: list[Shape] = [Text((8, 14), title, "ink", 14, bold=True)]
    shapes += [
        box(56, 32, 12, 12, "c1"), Text((74, 38), "accuracy", "soft", 12),
        Mark((160, 38), 5, "c2"), Text((172, 38), "mean confidence", "soft", 12),
    ]  # fmt: skip
    for value in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        shapes.append(line((x.start, y(value)), (x.end, y(value)), "line"))
        shapes.append(Text((x.start - 8, y(value)), format_tick(value), "soft", 12, "end"))
        shapes.append(Text((x(value), 516), format_tick(value), "soft", 12, "middle"))
    for b in used:
        left, right = x(b.low) + 1, x(b.high) - 1
        assert b.accuracy is not None and b.confidence is not None
        shapes.append(box(left, y(b.accuracy), right - left, y(0) - y(b.accuracy), "c1"))
        height = counts(0) - counts(b.images)
        shapes.append(box(left, counts(b.images), right - left, height, "axis"))
    shapes.append(line((x(0), y(0)), (x(1), y(1)), "soft", dash=(5, 3)))
    shapes += [Mark(((x(b.low) + x(b.high)) / 2, y(b.confidence or 0.0)), 5, "c2") for b in used]
    shapes += [
        line((x.start, counts(0)), (x.end, counts(0)), "axis"),
        Text((x.start - 8, counts(most)), format_tick(most), "soft", 12, "end"),
        Text((x.start - 8, counts(0)), "images", "soft", 12, "end"),
        Text(((x.start + x.end) / 2, 536), "largest probability", "soft", 12, "middle"),
    ]
    return Drawing(470, 550, title, f"{len(used)} bins", shapes)
