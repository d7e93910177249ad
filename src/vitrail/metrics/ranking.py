"""How well scores rank one group above another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def auc(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """The chance that a positive scores higher than a negative, ties counting half; NaN where
    there are none of one kind."""
    above, below = (np.asarray(scores, np.float64) for scores in (positive, negative))
    if not len(above) or not len(below):
        return float("nan")
    below = np.sort(below)
    ranks = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
    return float(ranks.mean() / (2 * len(below)))
