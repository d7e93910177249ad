"""Holes in images filled smoothly from what surrounds them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def fill_holes(images: Tensor, hole: Tensor) -> Tensor:
    """The holes filled from around them, each by the finest scale at which something is known.

    Push and pull (Gortler et al. 1996): halve the image again and again, counting only what is
    known; then come back and fill what is missing at each scale from the coarser one.
    """
    known = (~hole).to(images.dtype)
    levels = [(images * known, known)]
    while max(levels[-1][0].shape[2:]) > 1:
        color, weight = levels[-1]
        color, weight = (F.avg_pool2d(t, 2, ceil_mode=True) for t in (color, weight))
        levels.append((color / weight.clamp_min(1e-8), (weight > 0).to(weight.dtype)))
    filled = levels[-1][0]
    for color, weight in reversed(levels[:-1]):
        coarse = F.interpolate(filled, color.shape[2:], mode="bilinear", align_corners=False)
        filled = torch.where(weight > 0, color, coarse)
    return filled
