"""Noise on the grid: whole multiples, the right amount, and nothing that a float could tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from vitrail.grid_noise import (
    FINE,
    add_laplace_noise,
    add_noise,
    find_step,
    reserve_delta,
)
from vitrail.rng import Key

KEY = Key(bytes(range(32)))


@pytest.mark.parametrize("deviation", [1e-30, 1e-6, 0.01, 1.0, 1.5, 64.0, 3e8])
def test_the_step_is_a_power_of_two_within_a_64th(deviation: float) -> None:
    step = find_step(deviation)
    assert math.frexp(step)[0] == 0.5 and deviation / 128 < step <= deviation / 64


@pytest.mark.parametrize("add", [add_noise, add_laplace_noise])
@pytest.mark.parametrize("deviation", [1e-4, 0.37, 20.0])
def test_every_number_is_a_whole_multiple_in_float32_too(add, deviation: float) -> None:
    values = torch.rand(5_000, generator=torch.Generator().manual_seed(1)) - 0.5
    noised = add(values, deviation, KEY.at("grid").stream())
    step = find_step(deviation)
    assert bool((torch.remainder(noised, step) == 0).all())
    assert bool((torch.remainder(noised.float().double(), step) == 0).all())


def test_gaussian_noise_is_gaussian_and_centered_on_values_between_the_grid() -> None:
    deviation, count = 0.7, 300_000
    value = find_step(deviation) * 0.37  # far from the grid
    noised = add_noise(torch.full((count,), value), deviation, KEY.at("gauss").stream())
    z = ((noised - value) / deviation).numpy()
    assert abs(z.mean()) < 5 / math.sqrt(count)
    # what is rounded afterwards adds step^2 / 12
    assert abs(z.var() - (1 + (find_step(deviation) / deviation) ** 2 / 12)) < 5 * math.sqrt(
        2 / count
    )
    jitter = (np.random.default_rng(0).random(count) - 0.5) * find_step(deviation) / deviation
    assert stats.kstest((z + jitter)[:100_000], "norm").pvalue > 1e-4


def test_laplace_noise_is_laplace() -> None:
    deviation, count = 2.0, 200_000
    z = (add_laplace_noise(torch.zeros(count), deviation, KEY.at("laplace").stream())).numpy()
    jitter = (np.random.default_rng(0).random(count) - 0.5) * find_step(deviation)
    scale = deviation / math.sqrt(2)
    assert stats.kstest((z + jitter)[:100_000], "laplace", (0, scale)).pvalue > 1e-4
    assert z.std() == pytest.approx(deviation, rel=0.02)


def test_what_is_public_moves_the_result_and_not_the_noise() -> None:
    deviation = 0.5
    values, around = torch.rand(2, 2_000, generator=torch.Generator().manual_seed(2)).double()
    alone = add_noise(values, deviation, KEY.stream())
    beside = add_noise(values, deviation, KEY.stream(), 3 * around)
    assert float((beside - alone - 3 * around).abs().max()) <= find_step(deviation)
    assert abs(float((beside - alone - 3 * around).mean())) < find_step(deviation) / 20


def test_neighbors_whose_whole_numbers_are_equal_release_the_same() -> None:
    """All that is seen of a value is its whole number of fine steps."""
    fine = find_step(0.5) * 2.0**-FINE
    one, other = torch.tensor([1000.1, -7.2]) * fine, torch.tensor([999.9, -6.8]) * fine
    first, second = (add_noise(v.double(), 0.5, KEY.at("same").stream()) for v in (one, other))
    assert torch.equal(first, second)


def test_ends() -> None:
    nothing = add_noise(torch.empty(0, 3), 1.0, KEY.stream())
    assert nothing.shape == (0, 3)
    assert add_noise(torch.tensor([2.0]), 0.0, KEY.stream()).tolist() == [2.0]
    broken = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    blank = add_noise(torch.zeros(4), 1.0, KEY.stream())
    assert torch.equal(add_noise(broken, 1.0, KEY.stream()), blank)
    assert float(add_noise(torch.tensor([1e300]), 1.0, KEY.stream())) < 1e14
    large = add_noise(torch.full((9,), 1e3), 1e-9, KEY.stream())
    assert float((large - 1e3).abs().max()) < 1e-7
    assert 0 < 1e-5 - reserve_delta(1e-5) < 1e-10
