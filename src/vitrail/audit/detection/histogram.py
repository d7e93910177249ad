"""The B halves: how one scalar is spread over a class's images at a site, in 32 bins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
BINS = 32
_REACH = float(np.arcsinh(60.0))

# Bins are equal in asinh of the scalar: fine in the middle, and nothing lies outside.
EDGES: Floats = np.linspace(-_REACH, _REACH, BINS + 1)
CENTERS: Floats = np.sinh((EDGES[1:] + EDGES[:-1]) / 2)


def count_bins(scalars: Floats) -> Counts:
    """How many scalars lie in each bin, [32]; the outer ones are open."""
    at = np.searchsorted(EDGES[1:-1], np.arcsinh(np.nan_to_num(scalars)), side="right")
    return np.bincount(at, minlength=BINS).astype(np.int64)
