"""The picture of calibration: a dot is what the model claims, a bar what came of it."""

import numpy as np
import pytest

from vitrail.report.charts.drawing import Mark, Path
from vitrail.report.figures.reliability_picture import (
    compute_reliability,
    draw_reliability,
    make_reliability,
)


def test_dots_are_claims_and_bars_are_facts(tmp_path):
    """Drawn at the height of the bar, a dot would say that every model is calibrated."""
    sure = np.array([[0.95, 0.05]] * 10)
    labels = np.array([0] * 3 + [1] * 7)  # it is right in 30 %
    bins = compute_reliability(sure, labels)
    draw_reliability(bins, 0.65, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
    shapes = make_reliability(bins, 0.65).shapes
    dot = [s for s in shapes if isinstance(s, Mark)][-1]
    bar = [s for s in shapes if isinstance(s, Path) and s.fill == "c1"][-1]
    top, bottom = bar.points[0][1], bar.points[2][1]
    full = bottom - 64  # the height of a share of 1
    assert (bottom - top) / full == pytest.approx(0.3)
    assert (bottom - dot.at[1]) / full == pytest.approx(0.95)
    assert bar.points[0][0] < dot.at[0] < bar.points[1][0]
