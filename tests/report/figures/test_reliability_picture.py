"""The picture of calibration: a dot is what the model claims, a bar what came of it."""

import numpy as np
import pytest
from matplotlib.axes import Axes

from vitrail.report.figures.reliability_picture import compute_reliability, draw_reliability


def test_dots_are_claims_and_bars_are_facts(tmp_path, monkeypatch):
    """Drawn at the height of the bar, a dot would say that every model is calibrated."""
    dots, bars = [], []
    scatter, bar = Axes.scatter, Axes.bar
    monkeypatch.setattr(Axes, "scatter", lambda *a, **k: dots.append(a[1:3]) or scatter(*a, **k))
    monkeypatch.setattr(Axes, "bar", lambda *a, **k: bars.append(a[1:3]) or bar(*a, **k))
    sure = np.array([[0.95, 0.05]] * 10)
    labels = np.array([0] * 3 + [1] * 7)  # it is right in 30 %
    draw_reliability(compute_reliability(sure, labels), 0.65, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
    ((across, heights),) = dots
    assert list(heights) == pytest.approx([0.95]) and list(bars[0][1]) == [0.3]
    assert list(across) == list(bars[0][0])
