"""The procedure: directions from the A halves, tests on the B halves, verdicts on every pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from vitrail.audit.detection.direction import Direction
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.permutation_test import PermutationResult, compare_membership
from vitrail.audit.detection.prediction_interval import Effect, compute_bounds, compute_effect
from vitrail.metrics.method_tests import holm
from vitrail.rng import Key

Counts = npt.NDArray[np.int64]
Pair = tuple[str, int]
Verdict = Literal["clear", "differs", "biased"]
Histograms = Mapping[str, Mapping[Pair, Counts]]  # site -> pair asked about -> 32 bins
SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class Contrast:
    """One class of one site against the same class elsewhere.

    `score` is about 1 where the verdict begins: the lesser of how far the effect is from the middle
    of the prediction interval, in units of its upper arm, and of the exact test's statistic, in
    units of what a normal one must reach. `raw_p` is exact for "the class looks alike at all
    sites", `p_value` corrected (Holm) over all pairs. `apart` names sites that were left out of
    the comparison because the class is biased there.
    """

    site: str
    label: int
    direction: Direction
    raw_p: float
    p_value: float
    effect: float
    limit: float
    statistic: float
    verdict: Verdict
    images: int
    apart: tuple[str, ...] = ()
    score: float = 0.0

    def find_unit(self, units: Sequence[Unit]) -> Unit:
        """What stands apart: a place where one does nearly as much as anything else."""
        place = self.direction.place
        return units[self.direction.unit if place is None else place]


def compare_pairs(
    directions: Mapping[Pair, Direction], histograms: Histograms, key: Key
) -> list[Contrast]:
    """Every pair that has images in B here and elsewhere, worst first.

    Where a class is biased at a site, other sites are compared again without it: they differ from
    it, which is its doing and not theirs. A site that lacks what others have is no such site.
    """
    contrasts = _compare(directions, histograms, key, {})
    biased = [c for c in contrasts if c.verdict == "biased" and not c.direction.lacks]
    apart: dict[int, set[str]] = {}
    for contrast in biased:
        strongest = max((c for c in biased if c.label == contrast.label), key=lambda c: c.effect)
        apart.setdefault(contrast.label, set()).add(strongest.site)
    return _compare(directions, histograms, key, apart) if apart else contrasts


def _compare(
    directions: Mapping[Pair, Direction],
    histograms: Histograms,
    key: Key,
    apart: Mapping[int, set[str]],
) -> list[Contrast]:
    rows: list[tuple[Pair, PermutationResult, Effect, int, tuple[str, ...]]] = []
    tests = len(directions)
    for (site, label), direction in directions.items():
        here = histograms.get(site, {}).get((site, label))
        without = {name for name in apart.get(label, ()) if name != site}
        others = [
            table[site, label]
            for name, table in histograms.items()
            if name != site and name not in without and (site, label) in table
        ]
        others = [h for h in others if h.sum()]
        if here is None or not here.sum() or not others:
            continue
        result = compare_membership(here, np.sum(others, 0), key.at(site, label), tests)
        effect = compute_effect(here, others, direction.common)
        rows.append(((site, label), result, effect, int(here.sum()), tuple(sorted(without))))
    corrected = holm([result.p_value for _, result, *_ in rows])
    critical = float(norm.isf(SIGNIFICANCE_LEVEL / max(1, len(rows))))
    bounds = compute_bounds([row[2] for row in rows], [row[0][1] for row in rows])
    contrasts = [
        Contrast(
            *pair,
            directions[pair],
            result.p_value,
            p,
            bound.size,
            bound.limit,
            result.statistic,
            decide_verdict(p, bound.score > 1),
            images,
            left_out,
            min(bound.score, result.statistic / critical),
        )
        for (pair, result, _, images, left_out), p, bound in zip(
            rows, corrected, bounds, strict=True
        )
    ]
    return sorted(contrasts, key=lambda c: -c.score)


def decide_verdict(p_value: float, outside: bool) -> Verdict:
    """Biased if the exact test says so and no honest pair is as far off; differs by the first."""
    if p_value >= SIGNIFICANCE_LEVEL:
        return "clear"
    return "biased" if outside else "differs"


def find_origin(contrasts: Sequence[Contrast]) -> Contrast | None:
    """The biased pair that stands out most among those that have what others lack."""
    biased = [c for c in contrasts if c.verdict == "biased" and not c.direction.lacks]
    return max(biased, key=lambda c: c.score, default=None)
