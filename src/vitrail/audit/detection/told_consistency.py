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
_LEVEL = 0.01  # for everything that is checked of a federation together
_FEWEST = 6  # images in B below which nothing is checked
_RELATIVE, _ABSOLUTE = 2.0**-11, 2.0**-25  # by which telling a number in half precision rounds it
_ENDS = np.sinh(EDGES)


def check_told(
    exchange: Exchange, histograms: Mapping[str, Mapping[Pair, Counts]]
) -> dict[str, str]:
    """Why what a site told does not fit together, for each site of which that must be said.

    All features of all classes of all sites share the level (Bonferroni): that covers every
    direction, however it was chosen on A (see `compute_split_p`).
    """
    doubts: dict[str, str] = {}
    tests = sum(
        int((table.counts > 0).sum()) * len(table.variance) for table in exchange.summaries.values()
    )
    for site, table in histograms.items():
        summary = exchange.summaries[site]
        for pair, counts in table.items():
            if counts.sum() < _FEWEST or not summary.counts[pair[1]]:
                continue
            p = compute_split_p(summary, pair[1], exchange.directions[pair], counts)
            if p * tests < _LEVEL:
                about = f"class {pair[1]}, along the direction of {pair[0]}"
                doubts.setdefault(site, f"its halves A and B are of different images ({about})")
    return doubts


def compute_split_p(
    summary: ClassSummary, label: int, direction: Direction, counts: Counts
) -> float:
    """How likely halves of the same images lie this far apart along a direction, at most.

    The spread is the largest that what was told of A allows, features in step and all of the
    site's spread in this class, beside that of B. In units of it no direction moves more
    than its single features: |sum w d| <= max(|d| / s) sum |w| s. So this p-value times the number
    of features is valid for a direction that was chosen on the same A (Student's t, one feature).
    """
    size, tested = int(summary.counts[label]), int(counts.sum())
    weights = np.abs(direction.weights) / direction.scale
    means = summary.means[label]
    center = float(direction.project(means[None])[0])
    rounding = float(weights @ (_RELATIVE * np.abs(means[direction.columns]) + _ABSOLUTE))
    variance = summary.variance[direction.columns] * (1 + 2 * _RELATIVE) + _ABSOLUTE
    lowest, highest = (float(counts @ ends) / tested for ends in (_ENDS[:-1], _ENDS[1:]))
    away = max(0.0, lowest - center, center - highest) - rounding
    if away <= 0:
        return 1.0
    told = float(weights @ np.sqrt(variance)) ** 2 * summary.freedom / max(1, size - 1)
    middle = float(counts @ CENTERS) / tested
    seen = float(counts @ (CENTERS - middle) ** 2) / max(1, tested - 1)
    error = np.sqrt((told + seen) * (1 / size + 1 / tested))
    return float(2 * stats.t.sf(away / error, max(1, summary.freedom)))
