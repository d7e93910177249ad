"""Fixed point: exact sums, rounded by half a step, and nothing that could overflow."""

from __future__ import annotations

import pytest
import torch

from vitrail.rng import derive_site_key
from vitrail.secure_aggregation.fixed_point import (
    BITS,
    compute_largest_summand,
    from_fixed,
    to_fixed,
)

SITES = ("east", "north", "west")


def values(site, size=5000):
    return torch.randn(size, generator=derive_site_key(1, site).torch(), dtype=torch.float64)


def test_fixed_point_is_off_by_half_a_step_at_most() -> None:
    x = values("east") * 100
    away = (from_fixed(to_fixed(x, 3)) - x).abs()
    assert float(away.max()) <= 2.0 ** -(BITS + 1)
    assert torch.equal(
        from_fixed(to_fixed(torch.tensor([0.0, -1.0, 0.5]), 2)),
        torch.tensor([0.0, -1.0, 0.5], dtype=torch.float64),
    )


@pytest.mark.parametrize(
    "bad",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        2.0 * compute_largest_summand(3),
        -2.0 * compute_largest_summand(3),
    ],
)
def test_what_could_overflow_is_refused_before_it_is_masked(bad) -> None:
    with pytest.raises(ValueError):
        to_fixed(torch.tensor([0.0, bad], dtype=torch.float64), 3)


def test_the_largest_numbers_of_all_sites_add_up() -> None:
    for sign in (1, -1):
        words = [
            to_fixed(torch.tensor([sign * compute_largest_summand(3)], dtype=torch.float64), 3)
            for _ in SITES
        ]
        assert float(from_fixed(sum(words))) == sign * 3 * compute_largest_summand(3)
