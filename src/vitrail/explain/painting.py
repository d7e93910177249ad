"""Painting over a region of an image: covered, filled from around it, or pasted from another."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from vitrail.data.fill_holes import fill_holes
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
