"""The distinguishing game: an empirical lower bound on epsilon, to catch a mechanism that lies.

Somebody runs a mechanism many times on one of two neighbors and says which one it was. An
(epsilon, delta)-private mechanism bounds how often that succeeds, so success proves an epsilon
from below (Jagielski et al. 2020, arXiv:2006.07709; Nasr et al. 2021, arXiv:2101.04535). The game
can refute a guarantee; it cannot prove one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from vitrail.errors import ConfigError
from vitrail.rng import Key

Floats = npt.NDArray[np.float64]
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
    return judged(scores[0], scores[1], delta, confidence)


def judged(without: Floats, there: Floats, delta: float, confidence: float = 0.95) -> Verdict:
    """The verdict on scores without and with the one that neighbors differ in.

    The threshold is chosen on one half of the trials and judged on the other, so that the
    choice costs no confidence.
    """
    if min(len(without), len(there)) < 2:
        raise ConfigError("a game needs at least two trials of each neighbor", where="trials")
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ConfigError("delta and confidence must lie between 0 and 1", where="delta")
    half = len(without) // 2, len(there) // 2
    tried = np.unique(np.concatenate([without[: half[0]], there[: half[1]]]))
    bounds = [_bound(without[: half[0]], there[: half[1]], t, delta, confidence) for t in tried]
    threshold = float(tried[int(np.argmax(bounds))])
    found = _bound(without[half[0] :], there[half[1] :], threshold, delta, confidence)
    return Verdict(max(0.0, found), threshold, len(without) + len(there), confidence)


def _bound(
    without: Floats, there: Floats, threshold: float, delta: float, confidence: float
) -> float:
    """ln((success - delta) / false alarms) for the guess "there" and for the guess "not there"."""
    risk = (1 - confidence) / 4  # two rates in each of two guesses
    hits, alarms = int((there > threshold).sum()), int((without > threshold).sum())
    pairs = (
        (_least(hits, len(there), risk), _most(alarms, len(without), risk)),
        (
            _least(len(without) - alarms, len(without), risk),
            _most(len(there) - hits, len(there), risk),
        ),
    )
    return max(
        math.log((success - delta) / false) if success > delta else -math.inf
        for success, false in pairs
    )


def _least(count: int, trials: int, risk: float) -> float:
    """Clopper and Pearson's lower end for a rate."""
    return float(beta.ppf(risk, count, trials - count + 1)) if count else 0.0


def _most(count: int, trials: int, risk: float) -> float:
    """Clopper and Pearson's upper end for a rate."""
    return float(beta.ppf(1 - risk, count + 1, trials - count)) if count < trials else 1.0
