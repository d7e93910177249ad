"""A site's images moved to look as the same class does elsewhere, before anything is trained.

One change for all images of a class, fitted to its mean look: what one image has and another has
not stays. Its parts are known from elsewhere: a gain at each frequency, a tone curve through
landmarks (Nyul and Udupa 1999), a gain at each place, and colors moved and scaled (Reinhard 2001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config.debias_section import Debias
from vitrail.data.image_set import ImageSet
from vitrail.data.look import (
    CELLS,
    QUANTILES,
    RINGS,
    compute_color_spread,
    compute_frequencies,
    compute_light,
    compute_power,
    compute_quantiles,
    compute_ring_powers,
    count_look,
    join_colors,
    split_colors,
)
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError

_TIMES = 3  # each part moves what the others fitted
_MOST_GAIN = 6.0  # at one frequency: what an image has lost cannot be had back
_PAD = 8  # pixels mirrored around an image, so that its borders do not meet


def harmonize_sites(images: ImageSet, sites: Sequence[SiteRows], debias: Debias) -> ImageSet:
    """The images with what `harmonize` does to the training images of suspected classes.

    Test images stay as they are: at a new image nobody knows the class.
    """
    if "harmonize" not in debias.remedies:
        return images
    pixels: npt.NDArray[np.uint8] | None = None
    for rows in sites:
        for one in debias.findings:
            if one.site == rows.name and one.look and one.label in images.classes:
                held = rows.train if rows.push is None else np.union1d(rows.train, rows.push)
                chosen = held[images.labels[held] == images.classes.index(one.label)]
                if len(chosen):
                    pixels = np.array(images.images) if pixels is None else pixels
                    pixels[chosen] = harmonize(pixels[chosen], one.look)
    return images if pixels is None else replace(images, images=pixels)


def harmonize(images: npt.NDArray[np.uint8], look: Sequence[float]) -> npt.NDArray[np.uint8]:
    """Images [N, H, W, C] whose mean look is moved to another."""
    channels = int(images.shape[3])
    if len(look) != count_look(channels):
        raise ConfigError(
            f"a look has {count_look(channels)} numbers for images of {channels} channels, and "
            f"this one has {len(look)}",
            where="debias.findings.look",
            hint="Take it from the audit of a run on such images.",
        )
    target = torch.tensor(look, dtype=torch.float64)
    if not bool(target.isfinite().all()):
        raise ConfigError("a look must be finite numbers", where="debias.findings.look")
    now = torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).to(torch.float64) / 255
    tone, rings, light, colors = torch.split(
        target, [len(QUANTILES), RINGS, CELLS, len(target) - len(QUANTILES) - RINGS - CELLS]
    )
    for _ in range(_TIMES):
        now = _move_light(now, light)
        now = _move_rings(now, rings)
        now = _move_colors(now, colors)
        now = _move_tone(now, tone).clamp(0, 1)
    return (now * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def _move_rings(images: Tensor, target: Tensor) -> Tensor:
    """A gain at each frequency, the same for all images and channels."""
    luma = split_colors(images)[:, 0]
    height, width = luma.shape[1:]
    now = compute_ring_powers(compute_power(luma), height, width).mean(0)
    bound = float(np.log(_MOST_GAIN))
    gain = ((target - now) / 2).clamp(-bound, bound).numpy()
    pad = min(_PAD, height - 1, width - 1)
    wide = F.pad(images, (pad, pad, pad, pad), mode="reflect")
    at = compute_frequencies(wide.shape[2], wide.shape[3]).numpy()
    centers = (np.arange(RINGS) + 0.5) / RINGS
    field = torch.from_numpy(np.exp(np.interp(at, centers, gain)))
    field[0, 0] = 1.0  # the mean is the tone's
    moved: Tensor = torch.fft.irfft2(torch.fft.rfft2(wide) * field, s=wide.shape[2:])
    return moved[:, :, pad : pad + height, pad : pad + width]


def _move_tone(images: Tensor, target: Tensor) -> Tensor:
    """A curve through the mean quantiles, for luma; opponent colors stay."""
    colors = split_colors(images)
    luma = colors[:, 0]
    now = compute_quantiles(luma).mean(0).numpy()
    now = np.maximum.accumulate(now) + 1e-6 * np.arange(len(now))
    goal = np.maximum.accumulate(target.numpy())
    low, high = goal[0] - now[0], goal[-1] - now[-1]  # beyond the ends: moved along
    values = luma.numpy()
    moved = np.interp(values, now, goal)
    moved = np.where(
        values < now[0], values + low, np.where(values > now[-1], values + high, moved)
    )
    return join_colors(torch.cat([torch.from_numpy(moved)[:, None], colors[:, 1:]], 1))


def _move_light(images: Tensor, target: Tensor) -> Tensor:
    """A gain at each place, smooth from 3 x 3 cells."""
    now = compute_light(split_colors(images)[:, 0]).mean(0)
    cells = (target - now).reshape(1, 1, 3, 3)
    gain = F.interpolate(cells, size=images.shape[2:], mode="bilinear", align_corners=False)
    return images * gain.exp()


def _move_colors(images: Tensor, target: Tensor) -> Tensor:
    """Opponent colors moved and scaled; nothing to do for gray images."""
    if not len(target):
        return images
    colors = split_colors(images)
    now = compute_color_spread(colors).mean(0)
    scale = (target[2:] / now[2:].clamp_min(1e-3)).clamp(1 / _MOST_GAIN, _MOST_GAIN)
    shape = (1, 2, 1, 1)
    moved = (colors[:, 1:] - now[:2].view(shape)) * scale.view(shape) + target[:2].view(shape)
    return join_colors(torch.cat([colors[:, :1], moved], 1))
