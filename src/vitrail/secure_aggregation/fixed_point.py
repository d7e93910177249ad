"""Fixed-point numbers: sums of them are exact, so masks can cancel to the last bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Words = npt.NDArray[np.uint64]
BITS = 32
"""Binary digits after the point: a number is rounded to the nearest multiple of 2^-32."""
_ROOM = 2.0**62  # of a sum, so that its sign is never in doubt


def compute_largest_summand(sites: int) -> float:
    """The largest number a site may add, so that a sum over all of them cannot overflow."""
    return _ROOM / (max(1, sites) * 2.0**BITS)


def cut_to_range(values: Tensor, sites: int) -> Tensor:
    """Numbers that all fit: what is too large is cut, and what is no number counts as 0. Neither
    moves two vectors further apart."""
    largest = compute_largest_summand(sites)
    return values.to(torch.float64).nan_to_num(0.0, largest, -largest).clamp(-largest, largest)


def to_fixed(values: Tensor, sites: int) -> Words:
    """Numbers as 64-bit words, in two's complement; ValueError if one does not fit."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if not largest <= compute_largest_summand(sites):  # NaN too
        raise ValueError(
            f"a number of size {largest:.3g} is over {compute_largest_summand(sites):.3g}"
        )
    scaled = torch.round(values.to(torch.float64) * 2.0**BITS).to(torch.int64)
    return scaled.numpy().view(np.uint64)


def from_fixed(words: Words) -> Tensor:
    """Words back as float64 numbers."""
    return torch.from_numpy(words.view(np.int64).astype(np.float64)) / 2.0**BITS
