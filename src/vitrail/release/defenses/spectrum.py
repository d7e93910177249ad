"""The frequencies of small kernels: a mask that drops the low ones, and noise without them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Radius = Literal["relative", "absolute"]


def make_high_pass_mask(
    height: int, width: int, cutoff: float, radius: Radius = "relative"
) -> Tensor:
    """Which bins of a `height` x `width` transform are kept, in the order of `torch.fft.fft2`.

    With the mean in the middle, at (height // 2, width // 2), a bin is kept if its distance from
    there is at least `cutoff` times half the longer side, or at least `cutoff` itself.
    """
    rows = (torch.arange(height) - height // 2).double()
    columns = (torch.arange(width) - width // 2).double()
    distance = (rows[:, None].square() + columns[None, :].square()).sqrt()
    limit = cutoff * max(height, width) / 2 if radius == "relative" else cutoff
    kept: Tensor = torch.fft.ifftshift(distance >= limit)
    return kept


def filter_noise(noise: Tensor, mask: Tensor) -> Tensor:
    """The part of real kernels [..., height, width] that lies in the kept bins.

    A mask by distance treats a frequency and its negative alike, so the result is real.
    """
    spectrum: Tensor = torch.fft.fft2(noise)
    back: Tensor = torch.fft.ifft2(spectrum * mask)
    return back.real
