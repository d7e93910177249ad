"""How an image looks as a whole, whatever it shows: tone, power by frequency, light, colors.

Sites tell means of these for an audit, and a site that harmonizes its images moves them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
RINGS = 16
CELLS = 9  # of light: a grid of 3 x 3
_HALF = math.sqrt(0.5)  # the largest frequency, cycles a pixel


def split_colors(images: Tensor) -> Tensor:
    """Luma and two opponent colors of images in 0..1 [N, C, H, W], [N, 3, H, W]; gray ones have
    luma alone."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return torch.stack(
        [(red + green + blue) / 3, (red - green) / 2, (red + green) / 4 - blue / 2], 1
    )


def join_colors(colors: Tensor) -> Tensor:
    """The inverse of `split_colors`."""
    if colors.shape[1] == 1:
        return colors
    luma, first, second = colors.unbind(1)
    both = luma + 2 * second / 3  # the mean of red and green
    return torch.stack([both + first, both - first, luma - 4 * second / 3], 1)


def compute_quantiles(luma: Tensor) -> Tensor:
    """Those of [N, H, W] at `QUANTILES`, [N, 15]."""
    order = luma.flatten(1).sort(1).values
    return order[:, [round(q * (order.shape[1] - 1)) for q in QUANTILES]]


def compute_frequencies(height: int, width: int) -> Tensor:
    """The frequency of each entry of a real transform in two dimensions, over the largest."""
    fy, fx = torch.fft.fftfreq(height)[:, None].abs(), torch.fft.rfftfreq(width)[None, :]
    frequencies: Tensor = (fy**2 + fx**2).sqrt() / _HALF
    return frequencies


def compute_power(luma: Tensor) -> Tensor:
    """The power of [N, H, W] at each frequency, through a window that hides the borders."""
    height, width = luma.shape[1:]
    window = torch.outer(torch.hann_window(height), torch.hann_window(width)).to(luma.dtype)
    centered = luma - luma.mean((1, 2), keepdim=True)
    power: Tensor = torch.fft.rfft2(centered * window).abs().square() / (height * width)
    return power


def compute_ring_powers(power: Tensor, height: int, width: int) -> Tensor:
    """The logarithm of the mean power in rings of frequency, [N, 16]."""
    ring = (compute_frequencies(height, width) * RINGS).long().clamp(0, RINGS - 1).flatten()
    sums = torch.zeros(len(power), RINGS, dtype=power.dtype).index_add_(1, ring, power.flatten(1))
    return (sums / torch.bincount(ring, minlength=RINGS).clamp_min(1) + 1e-7).log()


def compute_light(luma: Tensor) -> Tensor:
    """How light falls off: the logarithm of a 3 x 3 grid's tones against their mean, [N, 9]."""
    cells = F.adaptive_avg_pool2d(luma[:, None], 3).flatten(1)
    return ((cells + 0.02) / (cells.mean(1, keepdim=True) + 0.02)).log()


def compute_color_spread(colors: Tensor) -> Tensor:
    """Means and spreads of both opponent colors of [N, 3, H, W], [N, 4]."""
    flat = colors[:, 1:].flatten(2)
    return torch.cat([flat.mean(2), flat.std(2)], 1)


def compute_look(images: Tensor) -> Tensor:
    """The mean look of images [N, C, H, W] in 0..1: 15 quantiles, 16 rings, 9 cells and, with
    colors, 4 moments."""
    colors = split_colors(images)
    luma = colors[:, 0]
    height, width = luma.shape[1:]
    parts = [
        compute_quantiles(luma),
        compute_ring_powers(compute_power(luma), height, width),
        compute_light(luma),
    ]
    if colors.shape[1] > 1:
        parts.append(compute_color_spread(colors))
    return torch.cat(parts, 1).mean(0)


def count_look(channels: int) -> int:
    """How many numbers a look has."""
    return len(QUANTILES) + RINGS + CELLS + (4 if channels > 1 else 0)
