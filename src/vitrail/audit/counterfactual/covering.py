"""Counterfactual images: a region covered, a region swapped in, a shift undone."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitrail.explain.painting import paint

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
    return paint(images, hole, "cover" if how == "mean" else "blur")


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
