"""A lower bound on epsilon from one run (Steinke, Nasr, Jagielski 2023, arXiv:2305.08846).

Each of many canaries is in the training set by a coin of its own. Whoever sees what left guesses
some of the coins. An (epsilon, delta)-private mechanism bounds how many guesses can be right, so
many right ones prove an epsilon from below. The number of guesses must be fixed beforehand.
"""

from __future__ import annotations

import math

import numpy as np


def compute_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The most likely that so many guesses are right under (epsilon, delta) privacy.

    Theorem 5.2: P[right >= v] <= beta + alpha m delta with beta = P[B >= v] for B binomial with
    `guesses` tosses of e^eps / (1 + e^eps), and alpha = max over i of 2 P[v > B >= v - i] / i.
    """
    from scipy.stats import binom  # a second to import, seldom needed

    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"{right} of {guesses} guesses on {canaries} canaries cannot be right")
    chance = 1 / (1 + math.exp(-epsilon))
    steps = np.arange(1, right + 1)
    beta = float(binom.sf(right - 1, guesses, chance))
    tails = 2 * (binom.sf(right - steps - 1, guesses, chance) - beta) / steps
    alpha = float(tails.max(initial=0.0))
    return min(1.0, beta + alpha * canaries * delta)


def bound_epsilon(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> float:
    """The largest epsilon that so many right guesses refute, with the stated confidence."""
    low, high = 0.0, 1.0
    risk = 1 - confidence
    if compute_p_value(canaries, guesses, right, 0.0, delta) > risk:
        return 0.0
    while high < 64 and compute_p_value(canaries, guesses, right, high, delta) <= risk:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        fits = compute_p_value(canaries, guesses, right, middle, delta) <= risk
        low, high = (middle, high) if fits else (low, middle)
    return low
