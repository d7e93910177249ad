"""An estimate of epsilon from one run in which some sites were canaries. It is no bound.

Andrew et al. 2023, "One-shot empirical privacy estimation for federated learning",
arXiv:2302.03098. A canary adds a random direction, as long as the clip, to every sum it takes part
in. The cosine between a random direction that was never added and what was released is nearly
normal with mean 0 and variance 1 / d in d dimensions; those of the canaries have another mean. The
epsilon that tells the two normal distributions apart is the estimate. It says what this adversary
sees; another one may see more, and the accounted epsilon may be far above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.release.accounting import gaussian
from vitrail.rng import Key

Floats = npt.NDArray[np.float64]
_RESAMPLES = 200
_EQUAL = 1e-9  # spreads nearer than this, relatively, are taken for the same
_MOST = 1e4  # no epsilon beyond is told apart


@dataclass(frozen=True)
class Normal:
    """A normal distribution of one number."""

    mean: float
    spread: float


@dataclass(frozen=True)
class Estimate:
    """`epsilon`, with the 90 % of resampled canaries from `low` to `high`: with the spread of a
    direction that was not added, 1 / sqrt(d), which noise leaves as it is. `fitted` is the paper's
    own figure, for which the spread of the canaries is fitted too; few of them scatter it."""

    epsilon: float
    low: float
    high: float
    fitted: float


def estimate_epsilon(cosines: Floats, dimensions: int, delta: float, key: Key) -> Estimate:
    """The estimate from the cosines of canaries, with its spread over resampled ones."""
    if len(cosines) < 2 or dimensions < 1:
        raise ValueError("an estimate needs two canaries and one number at least")
    null = Normal(0.0, 1 / math.sqrt(dimensions))
    draws = key.numpy().integers(len(cosines), size=(_RESAMPLES, len(cosines)))
    again = [_find_shift(float(row.mean()), null, delta) for row in cosines[draws]]
    low, high = np.quantile(again, [0.05, 0.95])
    canaries = Normal(float(cosines.mean()), float(cosines.std(ddof=1)))
    epsilon = _find_shift(canaries.mean, null, delta)
    return Estimate(epsilon, float(low), float(high), tell_apart(canaries, null, delta))


def _find_shift(mean: float, null: Normal, delta: float) -> float:
    """The epsilon of two normal distributions of one spread; directions point one way only."""
    return gaussian.compute_epsilon(null.spread, delta, max(0.0, mean))


def tell_apart(one: Normal, other: Normal, delta: float) -> float:
    """The least epsilon at which both are (epsilon, delta)-indistinguishable."""
    if min(one.spread, other.spread) <= 0:
        return math.inf

    def enough(epsilon: float) -> bool:
        return max(compute_delta(one, other, epsilon), compute_delta(other, one, epsilon)) <= delta

    if enough(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def compute_delta(one: Normal, other: Normal, epsilon: float) -> float:
    """The integral of max(0, p - e^epsilon q) of two normal densities.

    ln(p / q) - epsilon is a quadratic; p is integrated where it is above 0.
    """
    a = (1 / other.spread**2 - 1 / one.spread**2) / 2
    b = one.mean / one.spread**2 - other.mean / other.spread**2
    c = (other.mean / other.spread) ** 2 / 2 - (one.mean / one.spread) ** 2 / 2
    c += math.log(other.spread / one.spread) - epsilon
    return sum(
        _weigh(one, low, high) - _scale(epsilon, _weigh(other, low, high))
        for low, high in _find_intervals(a, b, c, 1 / other.spread**2)
    )


def _find_intervals(a: float, b: float, c: float, size: float) -> list[tuple[float, float]]:
    """Where a x^2 + b x + c is above 0; `size` is what a counts as 0 against."""
    if abs(a) <= _EQUAL * size:
        if b == 0:
            return [(-math.inf, math.inf)] if c > 0 else []
        return [(-c / b, math.inf)] if b > 0 else [(-math.inf, -c / b)]
    root = b * b - 4 * a * c
    if root <= 0:
        return [(-math.inf, math.inf)] if a > 0 else []
    half = -(b + math.copysign(math.sqrt(root), b)) / 2  # without cancellation
    low, high = sorted((half / a, c / half if half else -b / a))
    return [(-math.inf, low), (high, math.inf)] if a > 0 else [(low, high)]


def _weigh(normal: Normal, low: float, high: float) -> float:
    """The probability of an interval, by whichever tail is exact."""
    from scipy.special import ndtr

    first, last = (low - normal.mean) / normal.spread, (high - normal.mean) / normal.spread
    if first > 0:
        return float(ndtr(-first) - ndtr(-last))
    return float(ndtr(last) - ndtr(first))


def _scale(epsilon: float, weight: float) -> float:
    """e^epsilon times a weight, where that is a number."""
    return math.exp(epsilon + math.log(weight)) if weight > 0 else 0.0
