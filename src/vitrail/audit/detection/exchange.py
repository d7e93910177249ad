"""What sites tell each other for an audit, in two steps, and what anybody makes of it.

First each site tells a summary of its A half. From all summaries everybody chooses the same
directions; then each site tells a histogram of its B half for each of them. Nothing else leaves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.audit.detection.class_summary import ClassSummary, compute_summary
from vitrail.audit.detection.contrast import Contrast, compare_pairs
from vitrail.audit.detection.direction import Direction, choose_directions
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.features import FeatureExtractor
from vitrail.audit.detection.halves import LEAST, average_groups, split_halves
from vitrail.audit.detection.histogram import BINS, Counts, count_bins
from vitrail.rng import Key

Pair = tuple[str, int]


@dataclass(frozen=True)
class SiteFeatures:
    """The features of one site's images, and its halves: what never leaves it."""

    features: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    classes: int

    def summarize(self, units: Sequence[Unit]) -> ClassSummary:
        """Of the A half."""
        rows, labels = self._average(self.a)
        tested = np.bincount(self._tested[1], minlength=self.classes).astype(np.int64)
        joint = [unit.columns for unit in units if unit.joint]
        return compute_summary(rows, labels, tested, self.classes, LEAST, joint)

    def count(self, directions: Mapping[Pair, Direction]) -> dict[Pair, Counts]:
        """Of the B half: a histogram for each direction, of the images of its class."""
        rows, labels = self._tested
        held = {label: rows[labels == label] for label in np.unique(labels).tolist()}
        none = rows[:0]
        return {
            pair: count_bins(direction.project(held.get(pair[1], none)))
            for pair, direction in directions.items()
        }

    @cached_property
    def _tested(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        return self._average(self.b)

    def _average(
        self, half: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        return average_groups(self.features[half], self.labels[half], self.group[half])


def compute_site_features(
    extractor: FeatureExtractor,
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int64],
    patients: npt.NDArray[np.str_] | None,
    classes: int,
    key: Key,
) -> SiteFeatures:
    """Features of a site's images, and halves by a key that everybody knows."""
    halves = split_halves(labels, patients, key)
    features = extractor(images).numpy().astype(np.float64)
    return SiteFeatures(features, labels, halves.a, halves.b, halves.group, classes)


@dataclass(frozen=True)
class Exchange:
    """The summaries of all sites that told one, and the units they are about."""

    summaries: Mapping[str, ClassSummary]
    units: tuple[Unit, ...]

    @cached_property
    def directions(self) -> dict[Pair, Direction]:
        """One for each class of each site; the same for everybody."""
        return choose_directions(self.summaries, self.units)

    @cached_property
    def digest(self) -> str:
        """Names the summaries, so that histograms of other ones are not mistaken for these."""
        text = json.dumps({n: t.to_json() for n, t in sorted(self.summaries.items())})
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def compare(self, told: Mapping[str, Mapping[Pair, Counts]], key: Key) -> list[Contrast]:
        """All pairs, worst first; sites that told no histogram are not in it."""
        return compare_pairs(self.directions, told, key)


def write_histograms(exchange: Exchange, counts: Mapping[Pair, Counts]) -> dict[str, Any]:
    """As JSON: sites, then classes, then bins; and of which summaries."""
    nested: dict[str, dict[str, list[int]]] = {}
    for (site, label), bins in counts.items():
        nested.setdefault(site, {})[str(label)] = bins.tolist()
    return {"of": exchange.digest, "counts": nested}


def parse_histograms(raw: Any, exchange: Exchange, summary: ClassSummary) -> dict[Pair, Counts]:
    """What a site told; KeyError, TypeError or ValueError where it does not fit.

    A histogram has exactly as many images as the site said beforehand that its B half has.
    """
    if raw["of"] != exchange.digest:
        raise ValueError("its histograms are about other summaries")
    counts: dict[Pair, Counts] = {}
    for site, label in exchange.directions:
        bins = raw["counts"][site][str(label)]
        if not isinstance(bins, list) or len(bins) != BINS:
            raise ValueError(f"a histogram has no {BINS} bins")
        if not all(type(n) is int and 0 <= n < 2**31 for n in bins):
            raise ValueError("what should be counts are none")
        if sum(bins) != int(summary.tested[label]) and summary.counts[label]:
            raise ValueError("a histogram has not as many images as were told before")
        counts[site, label] = np.array(bins, np.int64) * bool(summary.counts[label])
    return counts
