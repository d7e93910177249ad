"""Honest sites differ: how far is a class of a site outside what all other pairs do?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from vitrail.audit.detection.histogram import CENTERS

Counts = npt.NDArray[np.int64]
_LEVEL = 0.05
_UPPER = 0.8


@dataclass(frozen=True)
class Effect:
    """How far the class lies from the other sites' on the B halves, in SDs of one image there;
    `error` is its squared standard error."""

    size: float
    error: float


def compute_effect(site: Counts, others: Sequence[Counts], common: float) -> Effect:
    """The larger of a difference of means and one of mean excesses over the 80th percentile.

    What the site's other classes have as well, `common`, is taken off.
    """
    pool = np.sum(others, 0)
    size, total = int(site.sum()), int(pool.sum())
    level = np.arcsinh(CENTERS)
    edge = int(np.searchsorted(np.cumsum(pool), _UPPER * total))
    effects = []
    for scores in (level, np.maximum(level - level[edge], 0)):
        means = [float(h @ scores) / h.sum() for h in others if h.sum()]
        center = np.median(means) if len(means) > 2 else float(pool @ scores) / total
        spread = np.sqrt(max(float(pool @ (scores - pool @ scores / total) ** 2) / total, 0.0))
        spread = max(spread, 0.5 * (level[1] - level[0]))  # of a bin, if all are in one
        effects.append((float(site @ scores) / size - center) / spread)
    return Effect(max(effects) * (1 - common), 1 / size + 1 / total)


def compute_limit(effect: Effect, rest: Sequence[Effect], tests: int) -> float:
    """The upper end of the interval in which this effect would lie, by all other pairs.

    A prediction interval of a random-effects model (Higgins, Thompson and Spiegelhalter 2009),
    with the moment estimate of the variance between pairs, one-sided, at 0.05 shared among the
    tests: few pairs and few images make it wide.
    """
    if len(rest) < 2:
        return float("inf")
    sizes, errors = np.array([e.size for e in rest]), np.array([e.error for e in rest])
    between = max(0.0, float(sizes.var(ddof=1) - errors.mean()))
    spread = between + effect.error + float(sizes.var(ddof=1)) / len(rest)
    quantile = float(stats.t.ppf(1 - _LEVEL / max(1, tests), len(rest) - 1))
    return float(sizes.mean()) + quantile * float(np.sqrt(spread))
