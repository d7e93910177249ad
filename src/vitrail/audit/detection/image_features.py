"""Low-level statistics of an image as a whole: how it was taken, compressed, resampled, shaded."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.audit.detection.feature_layout import Block, make_whole_block
from vitrail.audit.detection.pixel_features import blur, log_energy
from vitrail.data.look import (
    compute_color_spread,
    compute_light,
    compute_power,
    compute_quantiles,
    compute_ring_powers,
    split_colors,
)

_BLOCK = 8  # the side of a block of JPEG


def make_image_blocks(images: Tensor) -> list[Block]:
    """Tone curve, colors, spectrum, noise and compression, borders and shading of [N, C, H, W]."""
    colors = split_colors(images)
    luma = colors[:, 0]
    blocks = {
        "tone curve": _compute_tone(luma),
        "spectrum": _compute_spectrum(luma),
        "noise": _compute_noise(luma),
        "border": _compute_border(colors),
        "shading": _compute_shading(luma),
    }
    if colors.shape[1] > 1:
        blocks["colors"] = _compute_color_moments(colors)
    return [make_whole_block(name, "image-wide", values) for name, values in blocks.items()]


def _compute_tone(luma: Tensor) -> Tensor:
    """Quantiles, spread, and the shares of black, white and distinct levels."""
    flat = luma.flatten(1)
    levels = (flat * 255).round().clamp(0, 255).long()
    counts = torch.zeros(len(flat), 256, dtype=flat.dtype).scatter_add_(
        1, levels, torch.ones_like(flat)
    )
    distinct = (counts > 0).to(flat.dtype).mean(1)
    ends = torch.stack(
        [(flat <= 1 / 255).to(flat.dtype).mean(1), (flat >= 254 / 255).to(flat.dtype).mean(1)], 1
    )
    share = counts / flat.shape[1]
    entropy = -(share * (share + 1e-12).log()).sum(1)
    comb = (share[:, 1:] - share[:, :-1]).abs().sum(1)
    extra = torch.stack([flat.mean(1), flat.std(1), distinct, entropy, comb], 1)
    return torch.cat([compute_quantiles(luma), ends, extra], 1)


def _compute_color_moments(colors: Tensor) -> Tensor:
    """Means, spreads, skews and extremes of both opponent colors, and how they go together."""
    flat = colors[:, 1:].flatten(2)
    mean, spread = flat.mean(2), flat.std(2)
    unit = (flat - mean[..., None]) / spread.clamp_min(1e-3)[..., None]
    together = (unit[:, 0] * unit[:, 1]).mean(1, keepdim=True)
    saturation = flat.abs().sum(1).sort(1).values
    at = [round(q * (saturation.shape[1] - 1)) for q in (0.05, 0.5, 0.95)]
    return torch.cat(
        [compute_color_spread(colors), (unit**3).mean(2), together, saturation[:, at]], 1
    )


def _compute_spectrum(luma: Tensor) -> Tensor:
    """Log power in rings of frequency, and how much of it is horizontal, vertical, diagonal."""
    height, width = luma.shape[1:]
    power = compute_power(luma)
    rings = compute_ring_powers(power, height, width)
    fy = torch.fft.fftfreq(height)[:, None].abs()
    fx = torch.fft.rfftfreq(width)[None, :]
    radius = (fy**2 + fx**2).sqrt()
    angle = torch.atan2(fy.expand_as(radius), fx.expand_as(radius))
    high = radius > 0.15
    sectors = [high & (angle < math.pi / 8), high & (angle > 3 * math.pi / 8)]
    sectors.append(high & ~sectors[0] & ~sectors[1])
    ways = torch.stack([(power[:, s].mean(1) + 1e-7).log() for s in sectors], 1)
    return torch.cat([rings, ways[:, :2] - ways[:, 2:], ways[:, :1] - ways[:, 1:2]], 1)


def _compute_noise(luma: Tensor) -> Tensor:
    """Noise level, sharpness, blockiness at 8 phases of a grid, and traces of resampling."""
    across, down = luma[..., 1:] - luma[..., :-1], luma[:, 1:] - luma[:, :-1]
    diagonal = (across[:, 1:] - across[:, :-1]).abs().flatten(1) / 2
    order = diagonal.sort(1).values
    at = [round(q * (order.shape[1] - 1)) for q in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)]
    levels = (order[:, at] + 1e-3).log()
    laplace = log_energy((luma - blur(luma[:, None])[:, 0]).square().mean((1, 2)))[:, None]
    flat_share = torch.stack(
        [(across == 0).to(luma.dtype).mean((1, 2)), (down == 0).to(luma.dtype).mean((1, 2))], 1
    )
    steps = []
    for difference in (across.abs().mean(1), down.abs().mean(2)):
        whole = difference[:, : difference.shape[1] // _BLOCK * _BLOCK]
        phases = (
            whole.reshape(len(luma), -1, _BLOCK).mean(1)
            if whole.shape[1]
            else difference.new_zeros(len(luma), _BLOCK)
        )
        phases = (phases + 1e-3).log()
        steps.append(phases - phases.mean(1, keepdim=True))
        even = difference[:, ::2].mean(1) + 1e-3
        odd = difference[:, 1::2].mean(1) + 1e-3
        steps.append((even / odd).log()[:, None])
    return torch.cat([levels, laplace, flat_share, *steps], 1)


def _compute_border(colors: Tensor) -> Tensor:
    """Tone, colors and contrast of the outermost rings, beside those of the whole."""
    height, width = colors.shape[2:]
    whole = colors.mean((2, 3))
    parts = []
    for thick in (
        1,
        max(2, round(0.03 * min(height, width))),
        max(3, round(0.08 * min(height, width))),
    ):
        ring = torch.ones(height, width, dtype=torch.bool)
        ring[thick : height - thick, thick : width - thick] = False
        values = colors[:, :, ring]
        parts += [values.mean(2), values.mean(2) - whole, log_energy(values.var(2))]
    return torch.cat(parts, 1)


def _compute_shading(luma: Tensor) -> Tensor:
    """How light falls off: the tone of a 3 x 3 grid against the mean, and center against edge."""
    edge = F.adaptive_avg_pool2d(luma[:, None], 8)[:, 0]
    middle = edge[:, 2:6, 2:6].mean((1, 2)) - edge.mean((1, 2))
    return torch.cat([compute_light(luma), middle[:, None]], 1)
