"""The distinguishing game: an empirical lower bound on epsilon, to catch a mechanism that lies.

Somebody runs a mechanism many times on one of two neighbors and says which one it was. An
(epsilon, delta)-private mechanism bounds how often that succeeds, so success proves an epsilon
from below (Jagielski et al. 2020, arXiv:2006.07709; Nasr et al. 2021, arXiv:2101.04535). The game
can refute a guarantee; it cannot prove one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.errors import ConfigError
from vitrail.rng import Key

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Mechanism = Callable[[bool, Key], float]


@dataclass(frozen=True)
class Verdict:
    """What a game proved: epsilon is at least `epsilon`, with the stated confidence.

    Outputs are told apart by whether their score is above `threshold`.
    """

    epsilon: float
    threshold: float
    trials: int
    confidence: float


def play(
    mechanism: Mechanism, trials: int, delta: float, key: Key, confidence: float = 0.95
) -> Verdict:
    """Run `mechanism(there, key)`, which scores its output, `trials` times on each neighbor."""
    scores = [
        np.array([mechanism(there, key.at(there, at)) for at in range(trials)], np.float64)
        for there in (False, True)
    ]
    return judge_scores(scores[0], scores[1], delta, confidence)


def judge_scores(without: Floats, there: Floats, delta: float, confidence: float = 0.95) -> Verdict:
    """The verdict on scores without and with the one that neighbors differ in.

    The threshold is chosen on one half of the trials and judged on the other, so that the
    choice costs no confidence.
    """
    if min(len(without), len(there)) < 2:
        raise ConfigError("a game needs at least two trials of each neighbor", where="trials")
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ConfigError("delta and confidence must lie between 0 and 1", where="delta")
    half = len(without) // 2, len(there) // 2
    first, second = (without[: half[0]], there[: half[1]]), (without[half[0] :], there[half[1] :])
    tried = np.unique(np.concatenate(first))
    threshold = tried[int(np.argmax(_compute_bounds(*first, tried, delta, confidence)))]
    (bound,) = _compute_bounds(*second, threshold[None], delta, confidence)
    count = len(without) + len(there)
    return Verdict(max(0.0, float(bound)), float(threshold), count, confidence)


def _compute_bounds(
    without: Floats, there: Floats, thresholds: Floats, delta: float, confidence: float
) -> Floats:
    """For each threshold ln((success - delta) / false alarms), the better of the guesses "there"
    above it and "not there" below it."""
    risk = (1 - confidence) / 4  # two rates in each of two guesses
    hits = len(there) - np.searchsorted(np.sort(there), thresholds, side="right")
    alarms = len(without) - np.searchsorted(np.sort(without), thresholds, side="right")
    pairs = (
        (
            _clopper_pearson_lower(hits, len(there), risk),
            _clopper_pearson_upper(alarms, len(without), risk),
        ),
        (
            _clopper_pearson_lower(len(without) - alarms, len(without), risk),
            _clopper_pearson_upper(len(there) - hits, len(there), risk),
        ),
    )
    with np.errstate(divide="ignore"):
        ratios = [
            np.log(np.maximum(success - delta, 0.0)) - np.log(false) for success, false in pairs
        ]
    bounds: Floats = np.maximum(*ratios)
    return bounds


def _clopper_pearson_lower(count: Counts, trials: int, risk: float) -> Floats:
    """Clopper and Pearson's lower end for rates."""
    from scipy.stats import beta  # a second to import, seldom needed

    known = beta.ppf(risk, np.maximum(count, 1), trials - np.maximum(count, 1) + 1)
    bound: Floats = np.where(count > 0, known, 0.0)
    return bound


def _clopper_pearson_upper(count: Counts, trials: int, risk: float) -> Floats:
    """Clopper and Pearson's upper end for rates."""
    from scipy.stats import beta

    known = beta.ppf(1 - risk, np.minimum(count, trials - 1) + 1, np.maximum(trials - count, 1))
    bound: Floats = np.where(count < trials, known, 1.0)
    return bound
