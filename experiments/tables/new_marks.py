"""Kinds of bias that were never looked at while the audit was built: for one evaluation.

None of them is among `bias.kind`, and no choice of the score was made on them.
"""

# ruff: noqa: ARG001  (all kinds take the same arguments)

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from vitrail.rng import Key

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Generator = np.random.Generator
NEW_KINDS: dict[str, tuple[str, ...]] = {
    "place": ("barcode", "ring", "arrow", "dots"),
    "anywhere": ("bubble", "hair", "star", "checker"),
    "tone": ("hue", "fade", "tilt", "solarize"),
    "acquisition": ("motion", "misregistration", "moire", "dead pixels"),
}
_FINE = 8  # drawings are made so much larger


def stamp_new(images: Pixels, kind: str, area: float, key: Key) -> Pixels:
    """Images [N, H, W, C] with a mark of about such a share of their area, or changed as a whole.

    What the mark is like is drawn once; where it lies, once or for each image by its family.
    """
    draw = key.numpy()
    if kind in _WASHES:
        changed = _WASHES[kind](images.astype(np.float32), draw)
        return np.clip(np.rint(changed), 0, 255).astype(np.uint8)
    height, width, channels = images.shape[1:]
    side = max(3, round(math.sqrt(area * height * width)))
    sprite = _draw_sprite(kind, side, draw)
    paint = sprite[..., :3] if channels == 3 else sprite[..., :3].mean(-1, keepdims=True)
    alpha = sprite[..., 3:] / 255
    fixed = draw.uniform(0.02, 0.98, 2)
    result = images.copy()
    for image in result:
        place = draw.uniform(0, 1, 2) if kind in NEW_KINDS["anywhere"] else fixed
        x, y = (int(v) for v in np.rint(place * (width - side, height - side)))
        part = image[y : y + side, x : x + side].astype(np.float32)
        mixed = part + alpha * (paint - part)
        image[y : y + side, x : x + side] = np.clip(np.rint(mixed), 0, 255).astype(np.uint8)
    return result


def _draw_sprite(kind: str, side: int, draw: Generator) -> Floats:
    """RGBA values [side, side, 4]."""
    big = side * _FINE
    picture = Image.new("RGBA", (big, big))
    pen = ImageDraw.Draw(picture)
    color = (*(int(v) for v in draw.integers(0, 256, 3)), 255)
    _DRAWINGS[kind](pen, big, color, draw)
    small = picture.resize((side, side), Image.Resampling.BOX)
    values: Floats = np.asarray(small, dtype=np.float32)
    return values


def _draw_barcode(pen: Any, big: int, color: Any, draw: Generator) -> None:
    edges = np.sort(draw.integers(0, big, 12)).tolist()
    pen.rectangle((0, big // 5, big, big - big // 5), fill=(250, 250, 250, 255))
    for left, right in zip(edges[::2], edges[1::2], strict=True):
        pen.rectangle((left, big // 5, right, big - big // 5), fill=(10, 10, 10, 255))


def _draw_ring(pen: Any, big: int, color: Any, draw: Generator) -> None:
    pen.ellipse((0, 0, big - 1, big - 1), outline=color, width=big // 6)


def _draw_arrow(pen: Any, big: int, color: Any, draw: Generator) -> None:
    pen.line((0, big, big // 2, big // 2), fill=color, width=big // 6)
    pen.polygon(((big, 0), (big // 4, big // 4), (3 * big // 4, 3 * big // 4)), fill=color)


def _draw_dots(pen: Any, big: int, color: Any, draw: Generator) -> None:
    for x in range(3):
        for y in range(3):
            at = (x * big // 3, y * big // 3)
            pen.ellipse((*at, at[0] + big // 4, at[1] + big // 4), fill=color)


def _draw_bubble(pen: Any, big: int, color: Any, draw: Generator) -> None:
    pen.ellipse((0, 0, big - 1, big - 1), fill=(*color[:3], 140), outline=color, width=big // 12)
    pen.ellipse((big // 5, big // 5, big // 2, big // 2), fill=(255, 255, 255, 230))


def _draw_hair(pen: Any, big: int, color: Any, draw: Generator) -> None:
    dark = tuple(v // 3 for v in color[:3])
    pen.arc((-big // 2, 0, big, 3 * big // 2), 270, 360, fill=(*dark, 255), width=big // 7)
    pen.arc((0, -big // 2, 3 * big // 2, big), 90, 180, fill=(*dark, 255), width=big // 7)


def _draw_star(pen: Any, big: int, color: Any, draw: Generator) -> None:
    points = []
    for k in range(10):
        far = big / 2 if k % 2 == 0 else big / 5
        angle = math.pi * k / 5
        points.append((big / 2 + far * math.sin(angle), big / 2 - far * math.cos(angle)))
    pen.polygon(points, fill=color)


def _draw_checker(pen: Any, big: int, color: Any, draw: Generator) -> None:
    step = big // 4
    for x in range(4):
        for y in range(4):
            shade = color if (x + y) % 2 else (255 - color[0], 255 - color[1], 255 - color[2], 255)
            pen.rectangle((x * step, y * step, (x + 1) * step, (y + 1) * step), fill=shade)


def _turn_hue(images: Floats, draw: Generator) -> Floats:
    """Channels exchanged in part; gray images get darker lights instead."""
    if images.shape[3] == 1:
        turned: Floats = np.minimum(images, 32 + 0.75 * images, dtype=np.float32)
    else:
        turned = 0.8 * images + 0.2 * np.roll(images, 1, 3)
    return turned


def _fade(images: Floats, draw: Generator) -> Floats:
    """Blacks lifted, as in an old print."""
    return 28 + images * (227 / 255)


def _tilt(images: Floats, draw: Generator) -> Floats:
    """Lighter to one side, darker to the other."""
    ramp = np.linspace(0.82, 1.18, images.shape[2], dtype=np.float32)
    tilted: Floats = images * ramp[None, None, :, None]
    return tilted


def _solarize(images: Floats, draw: Generator) -> Floats:
    """The lightest values turned back."""
    return np.where(images > 215, 430 - images, images)


def _move(images: Floats, draw: Generator) -> Floats:
    """Blur along one direction."""
    moved: Floats = np.mean([np.roll(images, by, 2) for by in (-1, 0, 1)], 0, dtype=np.float32)
    return moved


def _misregister(images: Floats, draw: Generator) -> Floats:
    """The first channel one pixel aside; gray images get a faint ghost."""
    if images.shape[3] == 1:
        return 0.8 * images + 0.2 * np.roll(images, 2, 2)
    result = images.copy()
    result[..., 0] = np.roll(images[..., 0], 1, 2)
    return result


def _add_moire(images: Floats, draw: Generator) -> Floats:
    """A faint grating."""
    y, x = np.mgrid[: images.shape[1], : images.shape[2]]
    wave = np.sin(2 * math.pi * (0.31 * x + 0.17 * y)).astype(np.float32)
    waved: Floats = images + 5 * wave[None, :, :, None]
    return waved


def _kill_pixels(images: Floats, draw: Generator) -> Floats:
    """One pixel of a hundred black or white, other ones in each image."""
    where = draw.random(images.shape[:3])
    result = images.copy()
    result[where < 0.005] = 0
    result[where > 0.995] = 255
    return result


_DRAWINGS: dict[str, Callable[[Any, int, Any, Generator], None]] = {
    "barcode": _draw_barcode,
    "ring": _draw_ring,
    "arrow": _draw_arrow,
    "dots": _draw_dots,
    "bubble": _draw_bubble,
    "hair": _draw_hair,
    "star": _draw_star,
    "checker": _draw_checker,
}
_WASHES: dict[str, Callable[[Floats, Generator], Floats]] = {
    "hue": _turn_hue,
    "fade": _fade,
    "tilt": _tilt,
    "solarize": _solarize,
    "motion": _move,
    "misregistration": _misregister,
    "moire": _add_moire,
    "dead pixels": _kill_pixels,
}
