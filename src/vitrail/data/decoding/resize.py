"""Every image becomes a square of one size; boxes and points follow, and can be mapped back.

`crop` scales the shorter side to the size and keeps the center, `stretch` ignores the aspect
ratio, `pad` scales the longer side and centers the image on black.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

Mode = Literal["crop", "stretch", "pad"]
Floats = npt.NDArray[np.float64]

DEFAULT_SIZE = 224
LARGEST_COMMON = 2048


@dataclass(frozen=True)
class ResizeTransform:
    """Where an original lies in the resized square: x' = sx * x + dx, y' = sy * y + dy."""

    sx: float
    sy: float
    dx: float
    dy: float

    def to_resized(self, points: npt.ArrayLike) -> Floats:
        """Points (x, y), or boxes (x0, y0, x1, y1), from original to resized pixels."""
        values = np.asarray(points, np.float64)
        scale, shift = self._tile(values.shape[-1])
        return values * scale + shift

    def to_original(self, points: npt.ArrayLike) -> Floats:
        """Points or boxes from resized pixels back to pixels of the original."""
        values = np.asarray(points, np.float64)
        scale, shift = self._tile(values.shape[-1])
        return (values - shift) / scale

    def _tile(self, length: int) -> tuple[Floats, Floats]:
        pairs = length // 2
        return np.tile([self.sx, self.sy], pairs), np.tile([self.dx, self.dy], pairs)


def make_resize_transform(width: int, height: int, size: int, mode: Mode) -> ResizeTransform:
    """The mapping of a width x height original into a size x size square."""
    if mode == "stretch":
        return ResizeTransform(size / width, size / height, 0.0, 0.0)
    if mode == "crop":
        scale = size / min(width, height)
        return ResizeTransform(
            scale, scale, (size - width * scale) / 2, (size - height * scale) / 2
        )
    inner_width, inner_height = _padded_size(width, height, size)
    left, top = (size - inner_width) // 2, (size - inner_height) // 2
    return ResizeTransform(inner_width / width, inner_height / height, float(left), float(top))


def _padded_size(width: int, height: int, size: int) -> tuple[int, int]:
    scale = size / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def resize_image(image: Image.Image, size: int, mode: Mode) -> Image.Image:
    """The image as a size x size square; bilinear, with averaging when it shrinks."""
    width, height = image.size
    if (width, height) == (size, size):
        return image
    how = Image.Resampling.BILINEAR
    if mode == "stretch":
        return image.resize((size, size), how)
    if mode == "crop":
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return image.resize((size, size), how, box=(left, top, left + side, top + side))
    inner = image.resize(_padded_size(width, height, size), how)
    square = Image.new(image.mode, (size, size))
    square.paste(inner, ((size - inner.width) // 2, (size - inner.height) // 2))
    return square


def choose_size(wanted: int | None, sizes: Iterable[tuple[int, int]], arrays: bool = False) -> int:
    """`data.image_size`, or the rule for leaving it out.

    The common size, if all images are squares of one size up to 2048. Otherwise 224 for image
    files, and the shorter side for arrays.
    """
    if wanted is not None:
        return wanted
    distinct = set(sizes)
    if len(distinct) == 1:
        width, height = next(iter(distinct))
        if (width == height or arrays) and min(width, height) <= LARGEST_COMMON:
            return min(width, height)
    return DEFAULT_SIZE


def map_boxes(
    boxes: npt.ArrayLike, sizes: npt.NDArray[np.int32], size: int, mode: Mode
) -> npt.NDArray[np.float32]:
    """Boxes [N, 4] or points [N, P, 2] of originals into the resized square, cut at its edges."""
    values = np.asarray(boxes, np.float64)
    mapped = [
        make_resize_transform(int(w), int(h), size, mode).to_resized(v)
        for v, (w, h) in zip(values, sizes)
    ]
    if not mapped:
        return values.astype(np.float32)
    inside = np.stack(mapped)
    if inside.ndim == 3:  # a point outside of the square is not visible
        gone = ((inside < 0) | (inside > size)).any(axis=-1)
        inside[gone] = np.nan
        return inside.astype(np.float32)
    return inside.clip(0, size).astype(np.float32)


def unmap_boxes(
    boxes: npt.ArrayLike, sizes: npt.NDArray[np.int32], size: int, mode: Mode
) -> npt.NDArray[np.float32]:
    """Boxes [N, 4] or points [N, P, 2] of the resized square back to pixels of the originals."""
    values = np.asarray(boxes, np.float64)
    back = [
        make_resize_transform(int(w), int(h), size, mode).to_original(v)
        for v, (w, h) in zip(values, sizes)
    ]
    return (np.stack(back) if back else values).astype(np.float32)
