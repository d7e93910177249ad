"""Painting over a region of an image: covered, filled from around it, or pasted from another."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import ConfigError, suggest_name

PaintMode = Literal["cover", "blur", "paste"]
PAINT_MODES: tuple[PaintMode, ...] = get_args(PaintMode)


def paint(images: Tensor, hole: Tensor, how: PaintMode, donor: Tensor | None = None) -> Tensor:
    """Images [N, C, H, W] with another content where `hole` [N, 1, H, W] is true.

    `cover`: the mean color of the rest. `blur`: smoothly from what surrounds the hole, so that
    nothing of the region is left. `paste`: the same place of `donor`.
    """
    if how == "cover":
        known = (~hole).to(images.dtype)
        fill = (images * known).sum((2, 3), keepdim=True) / known.sum((2, 3), keepdim=True).clamp(1)
        return torch.where(hole, fill, images)
    if how == "blur":
        return torch.where(hole, fill_holes(images, hole), images)
    if how != "paste":
        raise ConfigError(
            f"nothing can be painted by {how!r}", where="how", hint=suggest_name(how, PAINT_MODES)
        )
    if donor is None:
        raise ConfigError("pasting needs an image to paste from", where="paste")
    return torch.where(hole, donor, images)


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
