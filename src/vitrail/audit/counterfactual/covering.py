"""Counterfactual images: a region covered, a region swapped in, a shift undone."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

FillMode = Literal["mean", "blur"]


def make_box_mask(boxes: Tensor, height: int, width: int) -> Tensor:
    """Which pixels lie in boxes [N, 4] (x0, y0, x1, y1), as [N, 1, H, W] of bool."""
    x = torch.arange(width)
    y = torch.arange(height)
    in_x = (x >= boxes[:, :1]) & (x < boxes[:, 2:3])
    in_y = (y >= boxes[:, 1:2]) & (y < boxes[:, 3:4])
    return (in_y[:, :, None] & in_x[:, None, :])[:, None]


def cover(images: Tensor, boxes: Tensor, how: FillMode = "blur") -> Tensor:
    """Images [N, C, H, W] in 0..1 with the boxes filled: by the mean around them, or blurred.

    The blur sees only what lies outside the box, so that nothing of the region is left.
    """
    height, width = images.shape[2:]
    hole = make_box_mask(boxes, height, width)
    if how == "mean":
        known = (~hole).to(images.dtype)
        fill = (images * known).sum((2, 3), keepdim=True) / known.sum((2, 3), keepdim=True).clamp(1)
        return torch.where(hole, fill, images)
    return torch.where(hole, _fill_holes(images, hole), images)


def _fill_holes(images: Tensor, hole: Tensor) -> Tensor:
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


def swap(images: Tensor, donors: Tensor, boxes: Tensor) -> Tensor:
    """Each image with its donor's region in the donor's box put in at the same place."""
    hole = make_box_mask(boxes, *images.shape[2:])
    return torch.where(hole, donors, images)


def match_colors(images: Tensor, target: Tensor) -> Tensor:
    """Images whose colors are moved and scaled to the mean and spread of others': undoes a shift.

    `target` [M, C, H, W] are images without the suspected shift.
    """
    mean, spread = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    to_mean, to_spread = target.mean((0, 2, 3), keepdim=True), target.std((0, 2, 3), keepdim=True)
    moved = (images - mean) * (to_spread / spread.clamp_min(1e-6)) + to_mean
    return moved.clamp(0, 1)
