"""Two classifiers on the same images: how far apart, and are they level within a margin?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from vitrail.metrics.classification import Bools, Floats, Integers

LEVEL = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two accuracies on the same images, with its interval at 95 %.

    `p` is two-sided. `p_level` is that of the two one-sided tests: small where the difference lies
    within the margin on both sides. `disagree` is the share of images on which just one is right.
    """

    count: int
    difference: float
    low: float
    high: float
    p: float
    p_level: float
    disagree: float


def compare_paired(right: Bools, baseline: Bools, margin: float) -> PairedDifference:
    """Accuracy of one classifier minus that of another, image by image.

    Differences of -1, 0 and 1 have a mean and a standard error; normal limits, as in McNemar's
    test. It speaks for these models and images like these, not for other draws of the training.
    """
    if len(right) != len(baseline) or not len(right):
        raise ValueError("both classifiers must have answered the same images, at least one")
    change = right.astype(np.float64) - baseline.astype(np.float64)
    count, mean = len(change), float(change.mean())
    disagree = float(np.abs(change).mean())
    error = math.sqrt(max(disagree - mean**2, 0.0) / count)
    if error == 0:
        sure = float(mean == 0)
        return PairedDifference(count, mean, mean, mean, sure, float(abs(mean) >= margin), disagree)
    reach = float(ndtri((1 + LEVEL) / 2)) * error
    p = 2 * float(ndtr(-abs(mean) / error))
    level = max(float(ndtr((mean - margin) / error)), float(ndtr((-mean - margin) / error)))
    return PairedDifference(count, mean, mean - reach, mean + reach, p, level, disagree)


def balance_by_site(right: Bools, labels: Integers, site: Integers) -> float:
    """The mean over sites of the mean recall over the classes that the site's images have.

    Whoever knows only that a site sees one class often has 1 / (classes present) there.
    """
    sites = []
    for number in np.unique(site):
        here = site == number
        recalls: Floats = np.array(
            [right[here & (labels == c)].mean() for c in np.unique(labels[here])]
        )
        sites.append(float(recalls.mean()))
    return float(np.mean(sites)) if sites else float("nan")
