"""Low-level statistics of images by place: tone, color, contrast and texture of small cells."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.audit.detection.feature_layout import Block, make_place_block
from vitrail.data.look import split_colors

_FINE, _COARSE = 16, 6  # cells a side at most
_LEAST = 4  # pixels a side of a cell
_SMALL = 1e-4  # added to energies before their logarithm: a tenth of a gray level's


def blur(images: Tensor, times: int = 1) -> Tensor:
    """Images smoothed by [1 2 1] in both directions, so many times, their edges repeated."""
    kernel = torch.tensor([1.0, 2.0, 1.0], dtype=images.dtype) / 4
    channels = images.shape[1]
    across = kernel.view(1, 1, 1, 3).repeat(channels, 1, 1, 1)
    for _ in range(times):
        images = F.pad(images, (1, 1, 1, 1), mode="replicate")
        images = F.conv2d(images, across, groups=channels)
        images = F.conv2d(images, across.transpose(2, 3), groups=channels)
    return images


def log_energy(values: Tensor) -> Tensor:
    """The logarithm of a mean square, bounded below."""
    return (values + _SMALL).log()


def make_tone_block(images: Tensor) -> Block:
    """Mean tone and colors, contrast and fine detail of up to 16 x 16 cells."""
    colors = split_colors(images)
    luma = colors[:, :1]
    size = _choose_grid(images, _FINE)
    detail = luma - blur(luma)
    pooled = F.adaptive_avg_pool2d(torch.cat([colors, luma**2, detail**2], 1), size)
    mean, square, fine = pooled[:, :-2], pooled[:, -2:-1], pooled[:, -1:]
    contrast = (square - mean[:, :1] ** 2).clamp_min(0)
    return make_place_block("tone", torch.cat([mean, log_energy(contrast), log_energy(fine)], 1))


def make_texture_block(images: Tensor) -> Block:
    """Energies of three bands, and of both directions of the finest, in up to 6 x 6 cells."""
    luma = split_colors(images)[:, :1]
    one, two = blur(luma), blur(luma, 4)
    bands = [luma - one, one - two, two - blur(two, 8)]
    across = F.pad(luma[..., 1:] - luma[..., :-1], (0, 1))
    down = F.pad(luma[..., 1:, :] - luma[..., :-1, :], (0, 0, 0, 1))
    pooled = F.adaptive_avg_pool2d(
        torch.cat([*bands, across, down], 1) ** 2, _choose_grid(images, _COARSE)
    )
    return make_place_block("texture", log_energy(pooled))


def _choose_grid(images: Tensor, most: int) -> tuple[int, int]:
    height, width = images.shape[2:]
    return (
        max(1, min(most, height // _LEAST)),
        max(1, min(most, width // _LEAST)),
    )
