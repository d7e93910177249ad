"""Where a unit looks: its map at the size of the image, and a box around the strongest part."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

PERCENTILE = 95.0


def upsample(maps: Tensor, height: int, width: int) -> Tensor:
    """Maps [..., h, w] to the size of the image, bicubic."""
    lead = maps.shape[:-2]
    flat = maps.reshape(-1, 1, *maps.shape[-2:]).to(torch.float32)
    if not len(flat):
        return maps.new_zeros((*lead, height, width))
    large = F.interpolate(flat, size=(height, width), mode="bicubic", align_corners=False)
    return large.reshape(*lead, height, width)


def find_boxes(maps: Tensor, height: int, width: int, percentile: float = PERCENTILE) -> Tensor:
    """The smallest rectangles around what is at or above a percentile of each upsampled map.

    Returns [..., 4] of int64: x0, y0, x1, y1 in pixels, the right and lower edge excluded. A
    map that is the same everywhere, or not a number anywhere, gives the whole image.
    """
    large = upsample(maps, height, width)
    flat = large.flatten(-2)
    # the pixels at or above numpy's interpolated percentile; rounded, for 0.95 is no binary number
    keep = flat.shape[-1] - math.ceil(round(percentile / 100 * (flat.shape[-1] - 1), 6))
    threshold = flat.topk(keep, dim=-1).values[..., -1]
    strong = large >= threshold[..., None, None]
    x0, x1 = _span(strong.any(-2))
    y0, y1 = _span(strong.any(-1))
    return torch.stack([x0, y0, x1, y1], dim=-1)


def _span(line: Tensor) -> tuple[Tensor, Tensor]:
    """The first true place of [..., n], and the one after the last."""
    ones = line.to(torch.int64)
    return ones.argmax(-1), line.shape[-1] - ones.flip(-1).argmax(-1)
