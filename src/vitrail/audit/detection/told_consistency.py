"""Does what a site told fit together? Its two halves are of the same images, dealt out by a seed
that everybody knows, so the means of A foretell the histograms of B.

A site that tells both halves of other images than it trains on passes: no table can show that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import stats

from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.audit.detection.direction import Direction
from vitrail.audit.detection.histogram import CENTERS, EDGES

if TYPE_CHECKING:
    from vitrail.audit.detection.exchange import Exchange

Pair = tuple[str, int]
Counts = npt.NDArray[np.int64]
_LEVEL = 0.001  # for all checks of a federation together
_FEWEST = 6  # images in B below which nothing is checked
_ROUNDING = 0.2  # of a mean, in the scalar's units and as a share of it: bins are coarse
_MAD_TO_SD = 1.4826
_FAR = 6.0  # robust standard deviations of what choosing a direction does to honest pairs
_NARROW = 0.02  # of the variance that A told: images that agree more than that were made up


def check_told(
    exchange: Exchange, histograms: Mapping[str, Mapping[Pair, Counts]]
) -> dict[str, str]:
    """Why what a site told does not fit together, for each site of which that must be said."""
    directions = exchange.directions
    doubts: dict[str, str] = {}
    shrunk = _compute_shrinkage(exchange.summaries, directions, histograms)
    tests = sum(len(table) for table in histograms.values())
    for site, table in histograms.items():
        summary = exchange.summaries[site]
        for pair, counts in table.items():
            if counts.sum() < _FEWEST or not summary.counts[pair[1]]:
                continue
            problem = _check_one(site, pair, directions[pair], counts, summary, shrunk, tests)
            if problem is None and _agrees_too_much(site, pair, histograms):
                about = f"class {pair[1]}, along the direction of {pair[0]}"
                problem = f"its images in B agree more than images do ({about})"
            if problem is not None:
                doubts.setdefault(site, problem)
    return doubts


def _check_one(
    site: str,
    pair: Pair,
    direction: Direction,
    counts: Counts,
    summary: ClassSummary,
    shrunk: Mapping[Pair, float],
    tests: int,
) -> str | None:
    """One histogram against the means of the same site's other half."""
    mean, variance = _compute_moments(counts)
    told = _project_mean(summary, pair[1], direction)
    about = f"class {pair[1]}, along the direction of {pair[0]}"
    if pair[0] == site:
        if shrunk.get(pair, 0.0) > _FAR:
            return f"its half A stands apart and its half B does not ({about})"
        return None
    error = np.sqrt(max(variance, 0.25) * (1 / summary.counts[pair[1]] + 1 / counts.sum()))
    slack = _ROUNDING * (1 + abs(told))
    freedom = max(1, int(counts.sum()) - 1)
    far = max(0.0, abs(mean - told) - slack) / float(error)
    if 2 * stats.t.sf(far, freedom) < _LEVEL / max(1, tests):
        return f"its halves A and B are of different images ({about})"
    return None


def _agrees_too_much(
    site: str, pair: Pair, histograms: Mapping[str, Mapping[Pair, Counts]]
) -> bool:
    """Whether images agree here that differ at most other sites: what is rare is absent in most
    images everywhere, and they agree honestly."""
    mean, variance = _compute_moments(histograms[site][pair])
    elsewhere = [
        _compute_moments(table[pair])[1]
        for name, table in histograms.items()
        if name != site and pair in table and table[pair].sum() >= _FEWEST
    ]
    usual = float(np.median(elsewhere)) if elsewhere else 1.0
    return variance < _NARROW and abs(mean) < 5 and usual > 10 * _NARROW


def _compute_moments(counts: Counts) -> tuple[float, float]:
    """Mean and variance of a histogram, with the width of a bin as the least spread."""
    total = int(counts.sum())
    mean = float(counts @ CENTERS) / total
    return mean, float(counts @ (CENTERS - mean) ** 2) / total


def _project_mean(summary: ClassSummary, label: int, direction: Direction) -> float:
    """Where the mean of A lies along a direction, cut where histograms end."""
    value = float(direction.project(summary.means[label][None])[0])
    end = float(np.sinh(EDGES[-1]))
    return float(np.clip(value, -end, end))


def _compute_shrinkage(
    summaries: Mapping[str, ClassSummary],
    directions: Mapping[Pair, Direction],
    histograms: Mapping[str, Mapping[Pair, Counts]],
) -> dict[Pair, float]:
    """How much less each pair stands apart on B than on A, where its direction was chosen, beyond
    what choosing does to all pairs; in robust standard deviations."""
    losses = {}
    for pair, direction in directions.items():
        counts = histograms.get(pair[0], {}).get(pair)
        if counts is not None and counts.sum() >= _FEWEST:
            mean, variance = _compute_moments(counts)
            size = summaries[pair[0]].counts[pair[1]]
            error = np.sqrt(max(variance, 0.25) * (1 / size + 1 / counts.sum()))
            slack = _ROUNDING * abs(direction.shift)
            losses[pair] = (direction.shift - mean - slack) / float(error)
    if len(losses) < 4:
        return {}
    values = np.array(list(losses.values()))
    middle = float(np.median(values))
    spread = max(1.0, _MAD_TO_SD * float(np.median(np.abs(values - middle))))
    return {pair: (loss - middle) / spread for pair, loss in losses.items()}
