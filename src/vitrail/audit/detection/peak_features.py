"""What is found anywhere in an image: extremes of color, flatness and small filters, and how often
colors and small patterns occur.

A small object that lies elsewhere in each image leaves the means of places as they are. It moves
the largest answer of those filters that it fits, and the share of the colors and patterns that it
has, whatever it looks like: so many random filters are asked, which all sites draw alike.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.audit.detection.feature_layout import Block, make_whole_block
from vitrail.audit.detection.pixel_features import blur, log_energy
from vitrail.data.look import split_colors
from vitrail.rng import Key

_SIDES = (64, 32, 16)  # pixels to which images are shrunk: filters of 5 see 0.6, 2.4 and 10 %
_FILTERS, _TAPS = 24, 5
_LEVELS = (6, 3, 3)  # of luma and both opponent colors in the palette
_CODES = 6  # filters whose signs make a pattern
_FLAT_LEVELS = (6, 5, 5)  # of the palette of flat places
_FLAT = 6 / 255  # range of luma in 3 x 3 pixels below which a place is flat
_RARE = 0.002  # a share that is next to nothing


def make_peak_blocks(images: Tensor, key: Key) -> list[Block]:
    """Extremes at three scales: of colors and flatness, and of random filters."""
    colors = split_colors(images)
    tints, answers = [], []
    for at, side in enumerate(_SIDES):
        if min(images.shape[2:]) < side / 2:
            continue
        small = F.interpolate(colors, (side, side), mode="area")
        tints.append(_compute_tint_extremes(small))
        answers.append(_compute_filter_extremes(small, key.at("filters", at)))
    return [
        make_whole_block("colors anywhere", "anywhere", torch.cat(tints, 1)),
        make_whole_block("shapes anywhere", "anywhere", torch.cat(answers, 1)),
        make_whole_block("palette", "anywhere", _compute_palette(colors, _LEVELS)),
        make_whole_block("flat colors", "anywhere", _compute_flat_palette(colors)),
        *(
            make_whole_block(f"patterns {times}", "anywhere", values)
            for times, values in _compute_patterns(colors, key.at("patterns"))
        ),
    ]


def _compute_palette(
    colors: Tensor, levels: tuple[int, ...], weight: Tensor | None = None
) -> Tensor:
    """Log shares of colors, each pixel shared between the bins it lies between."""
    flat = None if weight is None else weight.flatten(1)
    if colors.shape[1] == 1:
        return _count_softly(colors.flatten(2), (32,), ((0.0, 1.0),), flat)
    reach = ((0.0, 1.0), (-0.3, 0.3), (-0.3, 0.3))
    return _count_softly(colors.flatten(2), levels, reach, flat)


def _compute_flat_palette(colors: Tensor) -> Tensor:
    """Log shares of the colors of flat places: things that were drawn are flat, pictures seldom."""
    luma = colors[:, :1]
    extent = F.max_pool2d(luma, 3, 1, 1) + F.max_pool2d(-luma, 3, 1, 1)
    weight = (extent <= _FLAT).to(colors.dtype)
    return _compute_palette(colors, _FLAT_LEVELS, weight)


def _count_softly(
    values: Tensor,
    levels: tuple[int, ...],
    reach: tuple[tuple[float, float], ...],
    weight: Tensor | None,
) -> Tensor:
    """The log share of pixels [N, C, P] near each point of a grid of levels."""
    near = []
    for channel, (count, (low, high)) in enumerate(zip(levels, reach, strict=True)):
        at = ((values[:, channel] - low) / (high - low)).clamp(0, 1) * (count - 1)
        points = torch.arange(count, dtype=values.dtype)
        near.append((1 - (at[..., None] - points).abs()).clamp_min(0))
    if weight is not None:
        near[0] = near[0] * weight[..., None]
    if len(near) == 1:
        shares = near[0].mean(1)
    else:
        pixels = values.shape[2]
        shares = torch.einsum("npa,npb,npc->nabc", *near).flatten(1) / pixels
    return (shares + _RARE).log()


def _compute_patterns(colors: Tensor, key: Key) -> list[tuple[str, Tensor]]:
    """Log shares of the sign patterns of random filters of 3 x 3: of luma, fine and coarse, and of
    both opponent colors, where a color as such is a pattern too."""
    luma, chroma = colors[:, :1], colors[:, 1:]
    pictures = [("fine", luma), ("coarse", F.avg_pool2d(blur(luma), 3))]
    if chroma.shape[1]:
        pictures.append(("colored", blur(chroma)))
    patterns = []
    for name, picture in pictures:
        if min(picture.shape[2:]) < 8:
            continue
        colored = name == "colored"
        drawn = key.at("colored") if colored else key
        draw = torch.randn(_CODES, picture.shape[1], 3, 3, generator=drawn.torch())
        draw -= draw.mean((2, 3), keepdim=True) * (0.5 if colored else 1)
        patterns.append((name, _count_patterns(picture, draw.to(picture.dtype))))
    return patterns


def _count_patterns(picture: Tensor, filters: Tensor) -> Tensor:
    bits = 2 ** torch.arange(len(filters))
    signs = F.conv2d(picture, filters) > 0
    codes = (signs * bits.view(1, -1, 1, 1)).sum(1).flatten(1)
    counts = torch.zeros(len(picture), 2 ** len(filters), dtype=picture.dtype).scatter_add_(
        1, codes, torch.ones_like(codes, dtype=picture.dtype)
    )
    return (counts / codes.shape[1] + _RARE).log()


def _compute_tint_extremes(colors: Tensor) -> Tensor:
    """Largest and least tone and colors, and contrast of the flattest and the roughest window."""
    smooth = blur(colors)
    luma = colors[:, :1]
    mean = F.avg_pool2d(luma, 3, 1)
    rough = log_energy((F.avg_pool2d(luma**2, 3, 1) - mean**2).clamp_min(0))
    maps = torch.cat([smooth[..., 1:-1, 1:-1], rough], 1).flatten(2)
    return torch.cat([maps.amax(2), maps.amin(2)], 1)


def _compute_filter_extremes(colors: Tensor, key: Key) -> Tensor:
    """The largest and the least answer of filters without a mean, which see no tone."""
    draw = torch.randn(
        _FILTERS, colors.shape[1], _TAPS, _TAPS, generator=key.torch(), dtype=torch.float32
    )
    draw[:, 1:] *= 2  # opponent colors vary less
    draw -= draw.mean((2, 3), keepdim=True)
    draw = blur(draw)  # objects are smoother than noise
    draw = draw / draw.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    answers = F.conv2d(colors, draw.to(colors.dtype)).flatten(2)
    return torch.cat([answers.amax(2), answers.amin(2)], 1)
