"""Temperature scaling against the likelihood written out, on a fine grid."""

import math

import numpy as np
import pytest

from vitrail.metrics.temperature import apply_temperature, fit_temperature


def nll(logits, labels, temperature):
    total = 0.0
    for row, label in zip(logits, labels):
        z = [math.exp(v / temperature) for v in row]
        total -= math.log(z[label] / math.fsum(z))
    return total / len(labels)


def test_the_fit_is_the_best_of_a_grid():
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(200, 4)) * 3
    labels = np.array([draw.choice(4, p=p) for p in apply_temperature(logits, 2.5)])
    fitted = fit_temperature(logits, labels)
    best = min(np.geomspace(0.5, 10, 200), key=lambda t: nll(logits, labels, t))
    assert abs(fitted / best - 1) < 0.02
    assert 1.8 < fitted < 3.5


def test_an_order_never_changes_and_probabilities_are_whole():
    logits = np.array([[1e3, -1e3, 0.0], [0.0, 0.0, 0.0]])
    for temperature in (0.1, 1.0, 7.0):
        p = apply_temperature(logits, temperature)
        assert np.allclose(p.sum(1), 1) and p[0].argmax() == 0


def test_no_images_no_temperature():
    with pytest.raises(ValueError, match="no images"):
        fit_temperature(np.zeros((0, 3)), np.zeros(0, np.int64))
