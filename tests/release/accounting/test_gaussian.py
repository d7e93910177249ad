import math

import numpy as np
import pytest
from scipy.stats import norm

from vitrail.errors import ConfigError
from vitrail.release.accounting.gaussian import compute_delta, compute_epsilon, compute_sigma


def literal(eps: float, deviation: float, sensitivity: float) -> float:
    """Theorem 8 of Balle and Wang as printed."""
    a = sensitivity / (2 * deviation)
    b = eps * deviation / sensitivity
    return float(norm.cdf(a - b) - math.exp(eps) * norm.cdf(-a - b))


CASES = [
    (e, d, s) for e in (0.01, 0.5, 1.0, 4.0, 20.0) for d in (1e-9, 1e-5, 0.1) for s in (0.1, 3)
]


@pytest.mark.parametrize(("eps", "delta", "sensitivity"), CASES)
def test_noise_spends_exactly_what_was_asked_for(eps, delta, sensitivity):
    found = compute_sigma(eps, delta, sensitivity)
    assert literal(eps, found, sensitivity) == pytest.approx(delta, rel=1e-6)
    assert literal(eps, 0.999 * found, sensitivity) > delta  # nothing is given away
    assert compute_epsilon(found, delta, sensitivity) == pytest.approx(eps, rel=1e-9)


def test_delta_is_the_largest_gap_between_neighbors():
    """The definition: sup over sets of P(S) - e^eps Q(S), integrated on a fine grid."""
    for eps, deviation in ((0.3, 0.7), (1.0, 2.0), (2.5, 0.5)):
        x = np.linspace(-30, 30, 600_001)
        p, q = norm.pdf(x, 0, deviation), norm.pdf(x, 1, deviation)
        gap = float(np.clip(p - math.exp(eps) * q, 0, None).sum() * (x[1] - x[0]))
        assert compute_delta(eps, deviation, 1.0) == pytest.approx(gap, rel=1e-4, abs=1e-9)


def test_it_needs_less_noise_than_the_textbook_and_more_than_none():
    for eps in (0.1, 0.5, 0.99):
        classic = math.sqrt(2 * math.log(1.25 / 1e-5)) / eps
        assert 0.3 * classic < compute_sigma(eps, 1e-5, 1.0) < classic


def test_the_ends():
    assert compute_sigma(1.0, 1e-5, 0.0) == 0.0
    assert compute_delta(1.0, 1.0, 0.0) == 0.0
    assert compute_delta(1.0, 0.0, 1.0) == 1.0
    assert compute_epsilon(0.0, 1e-5, 1.0) == math.inf
    assert compute_epsilon(0.0, 1e-5, 0.0) == 0.0
    assert compute_epsilon(1e9, 1e-5, 1.0) == 0.0
    assert compute_epsilon(0.001, 1e-5, 1.0) > 1e5  # close to none is finite, and useless
    assert 0 < compute_sigma(1e4, 1e-5, 1.0) < 0.1


@pytest.mark.parametrize("eps", [0.0, -1.0, math.nan, math.inf])
def test_an_epsilon_that_means_nothing_is_refused(eps):
    with pytest.raises(ConfigError, match="above 0"):
        compute_sigma(eps, 1e-5, 1.0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_means_nothing_is_refused(delta):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        compute_sigma(1.0, delta, 1.0)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        compute_epsilon(1.0, delta, 1.0)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_a_sensitivity_or_a_deviation_that_means_nothing_is_refused(bad):
    with pytest.raises(ConfigError, match="sensitivity"):
        compute_sigma(1.0, 1e-5, bad)
    with pytest.raises(ConfigError, match="sigma"):
        compute_epsilon(bad, 1e-5, 1.0)
