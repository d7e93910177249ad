"""What a sum of discrete Gaussians costs, to which every site of a secure sum adds its own.

Kairouz, Liu and Steinke 2021, arXiv:2102.06387, theorem 1. A sum of n discrete Gaussians of scale
s is not one of scale s sqrt(n), but nearly: with

    tau = 10 sum over k = 1 .. n - 1 of exp(-2 pi^2 s^2 k / (k + 1))

a sum over d numbers of sensitivity D is (e^2 / 2)-concentrated private for

    e = min( sqrt(D^2 / (n s^2) + tau d / 2), D / (s sqrt(n)) + tau sqrt(d) ).

A Gaussian release of noise 1 / e costs the same in Renyi divergence, so it is what is accounted.
"""

from __future__ import annotations

import math

LEAST_SCALE = 64.0
"""The least scale of one site's noise in steps of the grid; the gap is below 1e-17000 then."""
_MOST_SITES = 10**6


def compute_gap(scale: float, count: int) -> float:
    """tau, for `count` discrete Gaussians of a scale in steps of the grid."""
    if count < 2:
        return 0.0
    exponent = -2 * math.pi**2 * scale**2
    # every further term is smaller than the one before; the first bounds each of them
    return 10 * (count - 1) * math.exp(exponent / 2) if exponent / 2 > -700 else 0.0


def compute_effective_noise(noise: float, scale: float, count: int, numbers: int) -> float:
    """The noise over sensitivity of the Gaussian that costs as much as the sum. `noise` is that of
    the sum: its deviation over the sensitivity."""
    if not noise > 0:
        return 0.0
    tau = compute_gap(scale, count)
    either = math.sqrt(1 / noise**2 + tau * numbers / 2), 1 / noise + tau * math.sqrt(numbers)
    return 1 / min(either)


def compute_distributed_noise(noise: float, numbers: int) -> float:
    """The same for a secure sum: every site's noise has at least `LEAST_SCALE` steps of the grid,
    and there are at most a million sites."""
    return compute_effective_noise(noise, LEAST_SCALE, _MOST_SITES, numbers)
