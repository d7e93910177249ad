"""The floating-point attack: which float32 numbers `deviation * z` can reach tells what was noised.

Mironov 2012, doi:10.1145/2382196.2382264. A product of two float32 numbers is rounded, so it skips
numbers; a released value that noise alone cannot reach was no 0 before. `score_reachable` plays in
the distinguishing game.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_NEIGHBORS = (-2, -1, 0, 1, 2)  # of the nearest factor, in steps of float32


def score_reachable(released: npt.NDArray[np.float32], deviation: float, value: float) -> float:
    """The share of released numbers that are `value` plus a float32 multiple of the deviation."""
    wanted = released.astype(np.float32).ravel()
    reached = np.zeros(len(wanted), np.bool_)
    scale = np.float32(deviation)
    factor = ((wanted - np.float32(value)) / scale).view(np.int32)
    for beside in _NEIGHBORS:
        z = (factor + np.int32(beside)).view(np.float32)
        reached |= np.float32(value) + scale * z == wanted
    return float(reached.mean())


def score_grid(released: npt.NDArray[np.float32], step: float) -> float:
    """The share of released numbers that are whole multiples of a step."""
    return float((np.mod(released.astype(np.float64), step) == 0).mean())
