"""Does a difference vanish within the groups of a known column, such as view, sex or age third?

Images are then dealt out anew within each group only. If the class looks alike at all sites once
the group is known, its images in B are exchangeable within groups, and the test is exact again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.audit.detection.histogram import CENTERS
from vitrail.rng import Key

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
MOST_GROUPS = 8
_DRAWS = 1999
_LEVEL = 0.05
_LEFT = 0.5  # of the difference at most, for a column to explain it: p alone may be few images


@dataclass(frozen=True)
class WithinGroups:
    """A class of a site against the others', group by group of one column.

    `effect` is the mean difference within groups and `whole` that without them, both in standard
    deviations of one image; `shared` is the share of the site's images whose group others have.
    """

    p_value: float
    effect: float
    whole: float
    shared: float

    @property
    def explains(self) -> bool:
        """Whether the column explains the difference: within its groups little of it is left, and
        what is left is no surprise. Where no group is shared, nothing can be compared, and the
        column goes with the difference."""
        if self.shared == 0:
            return True
        return self.p_value >= _LEVEL and self.effect <= _LEFT * self.whole

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return {**asdict(self), "explains": self.explains}


def compare_within_groups(site: Counts, others: Counts, key: Key) -> WithinGroups:
    """Of histograms [groups, bins] of the site and of all others together."""
    level = np.arcsinh(CENTERS)
    pool = site + others
    whole = _compute_difference(site.sum(0), others.sum(0), level)
    both = [g for g in range(len(site)) if site[g].sum() and others[g].sum()]
    if not both or not site.sum():
        return WithinGroups(1.0, 0.0, whole, 0.0)
    sizes = np.array([int(site[g].sum()) for g in both])
    shared = float(sizes.sum() / site.sum())
    effects = [_compute_difference(site[g], others[g], level) for g in both]
    observed = float(np.dot(sizes, [_compute_mean(site[g], level) for g in both]))
    draw, dealt = key.numpy(), np.zeros(_DRAWS)
    for g, size in zip(both, sizes, strict=True):
        hands = draw.multivariate_hypergeometric(
            pool[g], int(size), size=_DRAWS, method="marginals"
        )
        dealt += hands @ level
    hits = int((dealt >= observed - 1e-9).sum())
    effect = float(np.dot(sizes, effects) / sizes.sum())
    return WithinGroups((1 + hits) / (1 + _DRAWS), effect, whole, shared)


def _compute_mean(counts: Counts, level: Floats) -> float:
    return float(counts @ level) / max(1, int(counts.sum()))


def _compute_difference(site: Counts, others: Counts, level: Floats) -> float:
    """Of means, in standard deviations of one image of the others."""
    if not site.sum() or not others.sum():
        return 0.0
    center = _compute_mean(others, level)
    spread = float(np.sqrt(others @ (level - center) ** 2 / others.sum()))
    spread = max(spread, 0.5 * float(level[1] - level[0]))  # of a bin, if all are in one
    return (_compute_mean(site, level) - center) / spread


def list_group_columns(extra: dict[str, npt.NDArray[np.generic]]) -> list[str]:
    """The columns by which images can be grouped: few words, or numbers, which go by thirds."""
    chosen = []
    for name, values in extra.items():
        if values.ndim != 1:  # points and boxes of parts are no groups
            continue
        distinct = len(np.unique(values))
        if distinct > 1 and (np.issubdtype(values.dtype, np.number) or distinct <= MOST_GROUPS):
            chosen.append(name)
    return chosen


def group_values(
    values: npt.NDArray[np.generic], names: tuple[str, ...] | None, edges: tuple[float, ...] | None
) -> npt.NDArray[np.int64]:
    """The number of each value's group: that of a word among `names`, or between `edges`; -1 for
    a word that is not among them."""
    if edges is not None:
        numbers = np.nan_to_num(values.astype(np.float64), nan=-np.inf)
        return np.searchsorted(np.array(edges), numbers, side="right").astype(np.int64)
    known = {name: at for at, name in enumerate(names or ())}
    return np.array([known.get(str(value), -1) for value in values], np.int64)
