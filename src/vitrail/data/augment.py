"""Random views of a batch of training images, and the fixed views that a run may list."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config.schema import Augment
from vitrail.errors import ConfigError, suggest_name

VIEWS = ("identity", "flip", "rotate90", "rotate180", "rotate270")
"""Names of the fixed views; rotations are counterclockwise."""


def augment(batch: Tensor, options: Augment, generator: torch.Generator) -> Tensor:
    """A random view of every image of [N, C, H, W], uint8 or float, of the same kind and shape.

    Crop shifts by up to `crop` pixels, what is missing is mirrored; rotate and shear are the
    largest angles in degrees; cutout sets a square of that side to zero. The same generator
    state gives the same views; nothing asked for gives the batch itself.
    """
    if batch.ndim != 4:
        raise ValueError(f"a batch has the shape [N, C, H, W], not {tuple(batch.shape)}")
    if not options.active or not batch.shape[0]:
        return batch
    if options.rotate or options.shear:
        batch = _turn(batch, options.rotate, options.shear, generator)
    if options.crop or options.flip:
        batch = _shift(batch, options.crop, options.flip, generator)
    if options.cutout:
        batch = _cut(batch, options.cutout, generator)
    return batch


def _uniform(batch: Tensor, generator: torch.Generator) -> Tensor:
    """One number from -1 to 1 for every image."""
    draws = torch.rand(len(batch), generator=generator, device=generator.device)
    return (2 * draws - 1).to(batch.device)


def _integers(batch: Tensor, low: int, high: int, generator: torch.Generator) -> Tensor:
    draws = torch.randint(low, high, (len(batch),), generator=generator, device=generator.device)
    return draws.to(batch.device)


def _turn(batch: Tensor, rotate: float, shear: float, generator: torch.Generator) -> Tensor:
    """Rotation and shear as one resampling; the border is mirrored."""
    height, width = batch.shape[-2:]
    angle = _uniform(batch, generator) * math.radians(rotate)
    slant = torch.tan(_uniform(batch, generator) * math.radians(shear))
    c, s = torch.cos(angle), torch.sin(angle)
    # In normalized coordinates an image that is not square would be distorted by a rotation.
    x_by_y = (c * slant - s) * (height / width)
    y_by_x, y_by_y = s * (width / height), s * slant + c
    zero = torch.zeros_like(c)
    lines = torch.stack([c, x_by_y, zero], 1), torch.stack([y_by_x, y_by_y, zero], 1)
    kind = batch.dtype
    values = batch if kind.is_floating_point else batch.float()
    matrix = torch.stack(lines, 1).to(values.dtype)
    grid = F.affine_grid(matrix, list(batch.shape), align_corners=False)
    turned = F.grid_sample(values, grid, padding_mode="reflection", align_corners=False)
    return turned if kind.is_floating_point else turned.round().clamp(0, 255).to(kind)


def _shift(batch: Tensor, crop: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Shift and mirror by one gather of rows and columns."""
    count, channels, height, width = batch.shape
    rows = torch.arange(height, device=batch.device).expand(count, -1)
    columns = torch.arange(width, device=batch.device).expand(count, -1)
    if crop:
        rows = _mirror(rows + _integers(batch, -crop, crop + 1, generator)[:, None], height)
        columns = _mirror(columns + _integers(batch, -crop, crop + 1, generator)[:, None], width)
    if flip:
        mirror = _integers(batch, 0, 2, generator)[:, None].bool()
        columns = torch.where(mirror, columns.flip(1), columns)
    flat = (rows[:, :, None] * width + columns[:, None, :]).reshape(count, 1, -1)
    pixels = batch.reshape(count, channels, -1).gather(2, flat.expand(-1, channels, -1))
    return pixels.reshape(batch.shape)


def _mirror(index: Tensor, size: int) -> Tensor:
    """Positions reflected back into 0..size-1 without repeating the edge, however far outside."""
    if size == 1:
        return torch.zeros_like(index)
    folded = index.remainder(2 * (size - 1))
    return torch.minimum(folded, 2 * (size - 1) - folded)


def _cut(batch: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A square of zeros around a random pixel; at the border a part of it lies outside."""
    height, width = batch.shape[-2:]
    middle_y = _integers(batch, 0, height, generator)[:, None]
    middle_x = _integers(batch, 0, width, generator)[:, None]
    y = torch.arange(height, device=batch.device) - (middle_y - side // 2)
    x = torch.arange(width, device=batch.device) - (middle_x - side // 2)
    hole = ((y >= 0) & (y < side))[:, :, None] & ((x >= 0) & (x < side))[:, None, :]
    return batch.masked_fill(hole[:, None], 0)


def apply_view(batch: Tensor, name: str) -> Tensor:
    """One of the fixed views of [N, C, H, W]; a quarter turn swaps height and width."""
    if name == "identity":
        return batch
    if name == "flip":
        return batch.flip(-1)
    if name in VIEWS:
        return torch.rot90(batch, int(name.removeprefix("rotate")) // 90, (-2, -1))
    raise ConfigError(
        f"there is no view {name!r}", where="data.views", hint=suggest_name(name, VIEWS)
    )
