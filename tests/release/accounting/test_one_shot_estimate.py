"""The estimate from canary directions: near what a bare Gaussian mechanism costs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from vitrail.release.accounting import gaussian
from vitrail.release.accounting.one_shot_estimate import (
    Normal,
    compute_delta,
    estimate_epsilon,
    tell_apart,
)
from vitrail.rng import derive_server_key

KEY = derive_server_key(8)
DELTA = 1e-5
PAIRS = [
    (Normal(1.0, 1.0), Normal(0.0, 1.0)),
    (Normal(1.0, 1.3), Normal(0.0, 1.0)),
    (Normal(0.5, 0.8), Normal(0.0, 1.0)),
    (Normal(0.0, 2.0), Normal(0.0, 1.0)),
    (Normal(-0.7, 1.1), Normal(0.2, 0.9)),
    (Normal(0.3, 1.0), Normal(0.3, 1.0)),
]


@pytest.mark.parametrize("one, other", PAIRS)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_delta_is_the_integral_of_its_definition(one, other, epsilon):
    def part(x):
        p, q = norm.pdf(x, one.mean, one.spread), norm.pdf(x, other.mean, other.spread)
        return max(0.0, p - math.exp(epsilon) * q)

    edges = np.linspace(-20, 20, 161)
    wanted = sum(quad(part, a, b)[0] for a, b in pairwise(edges))
    assert compute_delta(one, other, epsilon) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("mean", [0.1, 1.0, 4.0])
def test_of_one_spread_it_is_the_analytic_gaussian_mechanism(mean):
    apart = tell_apart(Normal(mean, 1.0), Normal(0.0, 1.0), DELTA)
    assert apart == pytest.approx(gaussian.compute_epsilon(1.0, DELTA, mean), rel=1e-6)
    assert tell_apart(Normal(0.0, 1.0), Normal(0.0, 1.0), DELTA) == 0.0
    assert tell_apart(Normal(0.0, 0.0), Normal(0.0, 1.0), DELTA) == math.inf


def release(noise, canaries, dimensions, key, rounds=1):
    """A bare Gaussian mechanism over rounds: directions of length 1, and noise; their cosines."""
    draw = key.numpy()
    directions = draw.normal(size=(canaries, dimensions))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    seen = np.zeros(dimensions)
    for _ in range(rounds):
        total = directions.sum(0) + noise * draw.normal(size=dimensions)
        seen += total / np.linalg.norm(total)
    return directions @ seen / np.linalg.norm(seen)


@pytest.mark.parametrize("noise, rounds", [(1.0, 1), (2.0, 4), (3.0, 1)])
def test_a_bare_mechanism_is_estimated_near_its_cost_and_a_quarter_of_noise_above(noise, rounds):
    """400 canaries in 20,000 numbers: the mean of their cosines is off by 1 / sqrt(400) of a
    deviation, and they take 1 % of the length of the noise away from each other. Refuted if the
    estimate is over four such errors off, or a quarter of the noise looks like the whole."""
    canaries, dimensions = 400, 20_000
    cosines = release(noise, canaries, dimensions, KEY.at("honest", noise), rounds)
    estimate = estimate_epsilon(cosines, dimensions, DELTA, KEY)
    shift = math.sqrt(rounds) / math.sqrt(noise**2 + canaries / dimensions)
    low, high = (
        gaussian.compute_epsilon(1.0, DELTA, max(1e-9, shift + sign * 4 / math.sqrt(canaries)))
        for sign in (-1, 1)
    )
    accounted = gaussian.compute_epsilon(1.0, DELTA, math.sqrt(rounds) / noise)
    assert low <= estimate.epsilon <= high and low <= accounted <= high
    assert estimate.low < estimate.epsilon < estimate.high
    assert estimate.fitted == pytest.approx(accounted, rel=0.5)
    lying = release(noise / 4, canaries, dimensions, KEY.at("lying", noise), rounds)
    assert estimate_epsilon(lying, dimensions, DELTA, KEY).low > 2 * accounted


def test_directions_that_were_never_added_cost_nothing():
    """Of 60 runs without a canary the low end is above 0 in about 5 %, as it says."""
    draw = KEY.at("null").numpy()
    estimates = [
        estimate_epsilon(draw.normal(0, 0.01, 100), 10_000, DELTA, KEY.at(at)) for at in range(60)
    ]
    assert sum(estimate.low > 0 for estimate in estimates) <= 8  # more: 1 of 100 such tests


def test_bad_input_and_the_same_again():
    cosines = np.array([0.1, 0.2, 0.15])
    assert estimate_epsilon(cosines, 100, DELTA, KEY) == estimate_epsilon(cosines, 100, DELTA, KEY)
    for wrong, dimensions in ((cosines[:1], 100), (cosines[:0], 100), (cosines, 0)):
        with pytest.raises(ValueError, match="two canaries"):
            estimate_epsilon(wrong, dimensions, DELTA, KEY)
