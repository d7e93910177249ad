"""Noise on a grid: what is released are whole multiples of a step that does not depend on data.

Which floating-point numbers `sigma * z` can reach tells what it was added to (Mironov 2012,
doi:10.1145/2382196.2382264). So values are first rounded to a fine grid, 2^40 steps of it in one of
the released grid; whole noise is added; and the sum is rounded to the released grid, which has at
least 64 steps in a deviation, on top of what is public. All that leaves is a function of a whole
number and of what is public.

Why the accountant's figures hold. The discrete Gaussian of a scale of 2^46 or more is closer than
2^-90 in total variation to a Gaussian that is rounded to whole numbers; that, added to whole
numbers, is a rounded Gaussian mechanism, and rounding afterwards costs nothing. Rounding values
before moves neighbors apart by at most sqrt(numbers) fine steps, which `MARGIN` more noise pays for
up to a noise of 2^26 / sqrt(numbers) sensitivities. The distances add up to
numbers * (1 + e^epsilon) * 2^-90, which `RESERVED` of delta is kept for: 10^12 numbers at epsilon 8
and delta 1e-5.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from vitrail.discrete_gaussian import DiscreteLaplace, DiscreteSampler, make_sampler
from vitrail.rng import Stream

FINE = 40  # bits of the fine grid below the released one
MARGIN = 2.0**-20  # more noise than was asked for
RESERVED = 2.0**-20  # of delta, for what a sampler is off the definition
_COARSE = 64  # steps of the released grid in a deviation, at least
_LARGEST = 2.0**52  # steps of the released grid that a value may be away from 0


def find_step(deviation: float) -> float:
    """The step of the released grid: the largest power of two that is within deviation / 64."""
    return math.ldexp(1.0, math.frexp(deviation / _COARSE)[1] - 1) if deviation else 0.0


def reserve_delta(delta: float) -> float:
    """What of delta is left for the accountant."""
    return delta * (1 - RESERVED)


def add_noise(
    values: Tensor, deviation: float, source: Stream, around: Tensor | float = 0.0
) -> Tensor:
    """`around` + `values` + Gaussian noise of a deviation, on the grid, in float64.

    `values` are what the sensitivity is about; `around` is public. What is not finite counts as 0.
    """
    if not deviation:
        return values.detach().cpu().double() + around
    return _add(values, deviation, make_sampler(_count_fine_steps(deviation)), source, around)


def add_laplace_noise(values: Tensor, deviation: float, source: Stream) -> Tensor:
    """`values` + Laplace noise of a deviation, on the grid, in float64."""
    if not deviation:
        return values.detach().cpu().double()
    scale = _count_fine_steps(deviation) / math.sqrt(2)  # it deviates by sqrt(2) scales
    return _add(values, deviation, _make_laplace_sampler(scale), source, 0.0)


def _count_fine_steps(deviation: float) -> float:
    """The deviation of the noise in fine steps, margin included."""
    return math.ldexp(deviation * (1 + MARGIN) / find_step(deviation), FINE)


def _add(
    values: Tensor,
    deviation: float,
    sampler: DiscreteSampler,
    source: Stream,
    around: Tensor | float,
) -> Tensor:
    """A value is `whole` steps and `fine` ones; noise carries from the fine ones to the whole, so
    that both are functions of their sum."""
    step = find_step(deviation)
    exact = values.detach().cpu().double().nan_to_num(0.0, 0.0, 0.0).div(step)
    exact.clamp_(-_LARGEST, _LARGEST)
    whole = exact.round()
    fine = (exact - whole).mul_(2.0**FINE).round_().long()
    fine += torch.from_numpy(sampler.draw(fine.numel(), source)).view(fine.shape)
    carried = fine >> FINE
    rest = (fine - (carried << FINE)).double().mul_(2.0**-FINE)
    return (around / step + (whole + carried) + rest).round_().mul_(step)


@lru_cache(maxsize=64)
def _make_laplace_sampler(scale: float) -> DiscreteLaplace:
    return DiscreteLaplace(scale)
