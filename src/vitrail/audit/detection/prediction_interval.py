"""Honest sites differ: how far is a class of a site outside what all other pairs do?

Every pair has been looked at along the direction in which it stands apart most, so the effects of
honest pairs are alike, and one that is not is an outlier among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from vitrail.audit.detection.histogram import CENTERS

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_LEVEL = 0.05
_UPPER = 0.8
_FEWEST = 3  # other pairs, without which there is no interval
_PART = 4  # at most every fourth pair is taken for an outlier


@dataclass(frozen=True)
class Effect:
    """How far the class lies from the other sites' on the B halves, in SDs of one image there.

    `mean` is the difference of means, `excess` that of mean excesses over the others' 80th
    percentile, which a mark on some images moves; `error` is their squared standard error.
    """

    mean: float
    excess: float
    error: float


@dataclass(frozen=True)
class Bound:
    """One of both effects of a pair and the upper end of the interval in which it would lie; of
    the two the one that reaches further out. `score` is how far from the interval's middle, in
    units of its upper arm: beyond 1 it is outside."""

    size: float
    limit: float
    score: float


def compute_effect(site: Counts, others: Sequence[Counts], common: float) -> Effect:
    """Of histograms; what the site's other classes have as well, `common`, is taken off."""
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
        effects.append((float(site @ scores) / size - center) / spread * (1 - common))
    return Effect(effects[0], effects[1], 1 / size + 1 / total)


def compute_bounds(effects: Sequence[Effect], labels: Sequence[int]) -> list[Bound]:
    """For each pair, whose class is in `labels`, how far it lies and how far it might."""
    if len(effects) <= _FEWEST:
        return [Bound(max(e.mean, e.excess), float("inf"), 0.0) for e in effects]
    values = np.array([[e.mean for e in effects], [e.excess for e in effects]])[:, None]
    middle, width = compute_intervals(values, np.array([[e.error for e in effects]]), labels)
    scores = ((_stabilize(values) - middle) / width)[:, 0]
    limits = _undo(middle + width)[:, 0]
    return [
        Bound(float(values[at, 0, k]), float(limits[at, k]), float(scores[at, k]))
        for k, at in enumerate(scores.argmax(0).tolist())
    ]


def compute_limits(effects: Floats, errors: Floats, labels: Sequence[int]) -> Floats:
    """Upper ends for the means and the excesses [2, federations, pairs] of many federations."""
    return _undo(np.add(*compute_intervals(effects, errors, labels)))


def compute_intervals(
    effects: Floats, errors: Floats, labels: Sequence[int]
) -> tuple[Floats, Floats]:
    """Middle and upper arm of the interval of each pair, for means and roots of excesses.

    The interval is that of a random-effects model (Higgins, Thompson and Spiegelhalter 2009) with
    the moment estimate of the variance between pairs, one-sided, at 0.05 shared among all pairs
    and both effects. Excesses are skewed, their roots hardly. Outliers do not widen the interval of
    others: they are sought one after another and all at once left out (Rosner 1983).
    """
    pairs = effects.shape[2]
    values = _stabilize(effects)
    freedom = int(np.maximum(np.bincount(labels) - 1, 0).sum()) - 1  # K contrasts have K - 1
    rows = np.arange(len(errors))
    kept: Flags = np.ones_like(errors, bool)
    best = kept
    for number in range(1, max(1, pairs // _PART) + 1):
        ends = _compute_ends(values, errors, kept, freedom, pairs - number + 1)
        beyond = np.where(kept, _standardize(values, ends), -np.inf)
        at = beyond.argmax(1)
        outside = beyond[rows, at] > 1
        kept = kept.copy()
        kept[rows, at] = False
        best = np.where(outside[:, None], kept, best)
    return _compute_ends(values, errors, best, freedom, pairs)


def _stabilize(effects: Floats) -> Floats:
    """Means as they are, and signed roots of excesses."""
    roots = np.sign(effects[1]) * np.sqrt(np.abs(effects[1]))
    return np.stack([effects[0], roots])


def _undo(values: Floats) -> Floats:
    return np.stack([values[0], np.sign(values[1]) * values[1] ** 2])


def _standardize(values: Floats, ends: tuple[Floats, Floats]) -> Floats:
    largest: Floats = ((values - ends[0]) / ends[1]).max(0)
    return largest


def _compute_ends(
    values: Floats, errors: Floats, kept: Flags, freedom: int, tests: int
) -> tuple[Floats, Floats]:
    """Middle of the interval of each pair by all others that are kept, and its upper arm."""
    usual = _average_others(errors, kept)[0]
    middle, variance = (np.stack(part) for part in zip(*(_average_others(v, kept) for v in values)))
    variance[0] = np.maximum(variance[0], usual)  # sampling alone makes as much
    between = variance[0] - usual
    # Few images: a wider interval. Many make none narrower: their directions are better too.
    wider = np.maximum((between + errors) / (between + usual), 1)
    away = (~kept).sum(1, keepdims=True) - ~kept
    left = np.maximum(freedom - away, 1)
    quantile = stats.t.ppf(1 - _LEVEL / (2 * max(1, tests)), left)
    return middle, quantile * np.sqrt(variance * (wider + 1 / (left + 1)))


def _average_others(values: Floats, kept: Flags) -> tuple[Floats, Floats]:
    """Mean and variance [federations, pairs] over all kept pairs but the one itself."""
    weight = kept.astype(np.float64)
    count = weight.sum(1, keepdims=True) - weight
    center = (values * weight).sum(1, keepdims=True) / weight.sum(1, keepdims=True)
    shifted = values - center  # against loss of digits
    sums = (shifted * weight).sum(1, keepdims=True) - shifted * weight
    squares = (shifted**2 * weight).sum(1, keepdims=True) - shifted**2 * weight
    mean = sums / count
    variance = np.maximum((squares - count * mean**2) / np.maximum(count - 1, 1), 1e-9)
    return mean + center, variance
