"""A picture of a confusion matrix: what each class was taken for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.write_picture import write_drawing


def draw_confusion(confusion: Sequence[Sequence[int]], classes: Sequence[str], path: Path) -> None:
    """Draw true classes by predicted ones, toned by the share of each true class."""
    counts = np.asarray(confusion, dtype=np.int64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    cells = [
        [Cell(float(share), f"{count}") for count, share in zip(*lines, strict=True)]
        for lines in zip(counts, shares, strict=True)
    ]
    width = min(max(46.0 * len(classes), 320.0), 1700.0) + 180
    across = "predicted; a row is a true class, its tone the share of it"
    write_drawing(draw_matrix(classes, classes, cells, "Confusion", width, across), path)
