"""Epsilon of several images together, against closed forms and a game played by hand."""

import math
import time

import numpy as np
import pytest
from scipy.stats import binom, norm

from vitrail.release.accounting import gaussian
from vitrail.release.accounting.accountant import Event, compute_epsilon
from vitrail.release.accounting.group_privacy import compute_group_epsilon, list_group_draws


def test_one_image_costs_what_the_accountant_says():
    events = [Event(1.0, 0.1, 20)]
    assert compute_group_epsilon(events, 1, 1e-5) == pytest.approx(
        compute_epsilon(events, 1e-5), rel=0.01
    )


def test_without_sampling_it_is_the_gaussian_mechanism_of_k_times_the_sensitivity():
    wanted = gaussian.compute_epsilon(2.0 / math.sqrt(3), 1e-5, 4.0)
    assert compute_group_epsilon([Event(2.0, 1.0, 3)], 4, 1e-5) == pytest.approx(wanted)


@pytest.mark.parametrize(("size", "rate", "noise"), [(3, 0.2, 1.0), (7, 0.05, 0.8)])
def test_one_step_is_the_divergence_of_the_binomial_mixture(size, rate, noise):
    """delta(eps) = integral of max(0, mixture - e^eps N(0, noise^2)), and with both exchanged."""
    epsilon = compute_group_epsilon([Event(noise, rate, 1)], size, 1e-3)
    x = np.linspace(-20, 20 + 2 * size, 400_001)
    counts = np.arange(size + 1)
    mixed = sum(binom.pmf(j, size, rate) * norm.pdf(x, j, noise) for j in counts)
    plain = norm.pdf(x, 0, noise)
    step = x[1] - x[0]
    deltas = [
        float(np.maximum(0, one - math.exp(epsilon) * other).sum() * step)
        for one, other in ((mixed, plain), (plain, mixed))
    ]
    assert max(deltas) <= 1e-3 * 1.001  # an upper bound
    assert max(deltas) >= 1e-3 * 0.9  # and a tight one


def test_more_images_cost_more_and_many_are_rounded_up():
    costs = [compute_group_epsilon([Event(2.0, 0.05, 10)], size, 1e-5) for size in (1, 2, 5, 20)]
    assert costs == sorted(costs) and costs[-1] > 5 * costs[0]
    counts, chances = list_group_draws(1000, 0.1)
    assert len(counts) <= 65 and math.fsum(chances) == pytest.approx(1)
    assert np.dot(counts, chances) >= 100


def test_nothing_costs_nothing_and_no_noise_costs_everything():
    assert compute_group_epsilon([], 5, 1e-5) == 0.0
    assert compute_group_epsilon([Event(0.0, 0.5, 1)], 5, 1e-5) == math.inf


@pytest.mark.parametrize("noise", [0.05, 1e-3, 1e-9])
def test_terms_with_hardly_any_noise_are_counted_at_once(noise) -> None:
    """They are read before anybody agreed to them, and took minutes and gigabytes."""
    began = time.process_time()
    spent = compute_group_epsilon([Event(noise, 0.1, 20)], 20, 1e-5)
    assert spent >= compute_epsilon([Event(noise, 0.1, 20)], 1e-5) and spent > 1000
    assert time.process_time() - began < 5.0
