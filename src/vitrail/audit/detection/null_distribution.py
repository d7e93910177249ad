"""The null: how scores are spread where nothing was injected, and p-values from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

_FILE = Path(__file__).parent / "null.json"
_TAIL = 0.95  # beyond this share the observed scores are too few, and their tail is fitted
_ENOUGH = 5  # excesses; with fewer a tail cannot be fitted, and a p-value is a rank throughout


@dataclass(frozen=True)
class NullDistribution:
    """Scores of unbiased classes, sorted, and the mean excess of the largest of them.

    Up to the 95th percentile a p-value is a rank; beyond, the tail is exponential, the limit of
    excesses over a high threshold for distributions with light tails (Pickands 1975).
    """

    scores: tuple[float, ...]
    about: str = ""

    @staticmethod
    def from_scores(scores: Sequence[float], about: str = "") -> NullDistribution:
        """From the scores of unbiased federations."""
        return NullDistribution(tuple(sorted(float(s) for s in scores)), about)

    def p_value(self, score: float) -> float:
        """The chance of a score at least as large where there is no bias."""
        values = np.asarray(self.scores, np.float64)
        start = float(np.quantile(values, _TAIL)) if len(values) else np.inf
        above = values[values > start] - start
        if score <= start or len(above) < _ENOUGH:
            return float((1 + np.count_nonzero(values >= score)) / (1 + len(values)))
        return float((1 - _TAIL) * np.exp(-(score - start) / max(float(above.mean()), 1e-9)))


@cache
def load_shipped_null() -> NullDistribution:
    """The null that ships with the package; `about` says from which federations it was made."""
    stored = json.loads(_FILE.read_text(encoding="utf-8"))
    return NullDistribution.from_scores(stored["scores"], stored["about"])
