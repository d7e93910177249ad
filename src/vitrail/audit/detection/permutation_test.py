"""Is a class at one site like the same class at the others? Exact, whatever the distribution.

Given the A halves the scalar is fixed. If the class looks alike at all sites, its images in B are
exchangeable over sites, and dealing the pooled ones out again gives the null of this very
federation: its sites, images, backbone. Nothing is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.audit.detection.histogram import CENTERS
from vitrail.rng import Key

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
_UPPER = 0.8  # a mark on some images moves the upper end of the pool only
_FIRST, _ENOUGH = 249, 60  # draws at first; hits after which no more are drawn
_LEAST, _MANY = 999, 4000  # draws at least where hits are few, and at once


@dataclass(frozen=True)
class PermutationResult:
    """`p_value` is one-sided; `statistic` the larger of a rank sum and a mean excess over the
    pooled 80th percentile, in standard deviations under the permutations."""

    p_value: float
    statistic: float
    draws: int


def compare_membership(site: Counts, others: Counts, key: Key, tests: int) -> PermutationResult:
    """Of two histograms; draws enough for a correction over so many tests.

    Drawing ends at the 60th hit, with the p-value of Besag and Clifford (1991): exact, although
    the number of draws is not fixed.
    """
    size, pool = int(site.sum()), site + others
    if not size or not others.sum():
        return PermutationResult(1.0, 0.0, 0)
    scores = np.stack([_compute_ranks(pool), _compute_excess(pool)])
    mean, spread = _compute_moments(scores, pool, size)
    observed = _compute_statistic(site[None], scores, mean, spread)[0]
    at = np.flatnonzero(pool)  # empty bins cost time and nothing else
    draw, scores = key.numpy(), scores[:, at]
    most = max(_LEAST, 200 * tests)
    hits = done = 0
    while done < most:
        count = min(_FIRST if not done else min(_MANY, 3 * done), most - done)
        dealt = draw.multivariate_hypergeometric(pool[at], size, size=count, method="marginals")
        reached = _compute_statistic(dealt, scores, mean, spread) >= observed - 1e-9
        if hits + reached.sum() >= _ENOUGH:
            done += int(np.flatnonzero(reached)[_ENOUGH - hits - 1]) + 1
            return PermutationResult(_ENOUGH / done, float(observed), done)
        hits += int(reached.sum())
        done += count
    return PermutationResult((1 + hits) / (1 + done), float(observed), done)


def _compute_ranks(pool: Counts) -> Floats:
    """The mid-rank of each bin."""
    upto = np.cumsum(pool)
    ranks: Floats = upto - (pool - 1) / 2
    return ranks


def _compute_excess(pool: Counts) -> Floats:
    """How far each bin lies beyond the one that holds the pooled 80th percentile."""
    edge = int(np.searchsorted(np.cumsum(pool), _UPPER * pool.sum()))
    level = np.arcsinh(CENTERS)  # so that a single far image does not decide
    excess: Floats = np.maximum(level - level[edge], 0)
    return excess


def _compute_moments(scores: Floats, pool: Counts, size: int) -> tuple[Floats, Floats]:
    """Mean and SD of a sum of `size` scores drawn from the pool without replacement."""
    total = pool.sum()
    mean = scores @ pool / total
    variance = ((scores - mean[:, None]) ** 2 @ pool) / max(1, total - 1)
    return size * mean, np.sqrt(np.maximum(variance * size * (total - size) / total, 0))


def _compute_statistic(dealt: Counts, scores: Floats, mean: Floats, spread: Floats) -> Floats:
    standard = (dealt @ scores.T - mean) / np.where(spread > 1e-12, spread, np.inf)
    largest: Floats = standard.max(1)
    return largest
