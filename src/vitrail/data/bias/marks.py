"""What a shortcut looks like: marks drawn by our own code, and changes of the whole image.

A mark takes images at full strength; `stamp` blends its result with the original. Everything
that is drawn at one place reports that place, so that an audit can be scored against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from vitrail.config.schema import Bias
from vitrail.errors import ConfigError
from vitrail.registry import Registry
from vitrail.rng import Key

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.int64]
Sprite = Callable[[Bias, int], Image.Image]
Wash = Callable[[Floats, Bias, Key], Floats]

SPRITES: Registry[Sprite] = Registry("mark", "bias.kind")
WASHES: Registry[Wash] = Registry("change of the whole image", "bias.kind")

_CORNERS = {
    "upper-left": (0.04, 0.04),
    "upper-right": (0.96, 0.04),
    "lower-left": (0.04, 0.96),
    "lower-right": (0.96, 0.96),
    "center": (0.5, 0.5),
}
_FINE = 8  # sprites are drawn this much larger and shrunk, for smooth edges


def stamp(
    images: Pixels, bias: Bias, key: Key, rows: Rows | None = None
) -> tuple[Pixels, npt.NDArray[np.float32]]:
    """Put the mark of `bias` on every image [N, H, W, C]; the originals stay as they are.

    Returns new images and the places [N, 4] as (x0, y0, x1, y1), NaN for image-wide marks. A
    random place depends on the key and the image's number, `rows` or its position: give the
    same to draw the same. Sites, classes, share and where are not looked at.
    """
    regions = np.full((len(images), 4), np.nan, dtype=np.float32)
    if bias.strength == 0 or not len(images):
        return images, regions
    if bias.kind in WASHES:
        plain = images.astype(np.float32)
        washed = np.clip(WASHES[bias.kind](plain, bias, key), 0, 255)
        return _mix(plain, washed, np.float32(bias.strength)), regions
    if bias.kind not in SPRITES:
        raise ConfigError(
            f"{bias.kind!r} exchanges images and cannot be drawn on one", where="bias.kind"
        )
    numbers = np.arange(len(images)) if rows is None else rows
    return _paste(images, bias, _places(bias, key, numbers), regions)


def _places(bias: Bias, key: Key, numbers: Rows) -> npt.NDArray[np.float64]:
    """Where the mark goes, [N, 2] as shares of the room there is: (0, 0) is the upper left."""
    if bias.position == "random":
        return key.at("place").numpy().random((int(numbers.max()) + 1, 2))[numbers]
    place = bias.position if isinstance(bias.position, tuple) else _CORNERS[bias.position]
    return np.tile(np.array(place, dtype=np.float64), (len(numbers), 1))


def _paste(
    images: Pixels, bias: Bias, places: npt.NDArray[np.float64], regions: Floats
) -> tuple[Pixels, Floats]:
    height, width, channels = images.shape[1:]
    side = max(1, round(bias.size * min(height, width)))
    sprite = SPRITES[bias.kind](bias, side)
    sprite.thumbnail((width, height))
    picture = np.asarray(sprite.convert("RGBA"), dtype=np.float32)
    opacity = picture[..., 3:] / 255 * np.float32(bias.strength)
    paint = picture[..., :3] if channels == 3 else to_gray(picture[..., :3])
    high, wide = picture.shape[:2]
    corners = np.round(places * (width - wide, height - high)).astype(np.int64)
    result = images.copy()
    for image, (x, y), region in zip(result, corners, regions):
        area = image[y : y + high, x : x + wide]
        area[...] = _mix(area.astype(np.float32), paint, opacity)
        region[:] = (x, y, x + wide, y + high)
    return result, regions


def _mix(plain: Floats, marked: Floats, opacity: Floats | np.float32) -> Pixels:
    blend = plain + opacity * (marked - plain)
    return np.clip(np.rint(blend), 0, 255).astype(np.uint8)


def to_gray(colors: Floats) -> Floats:
    """The luma of RGB values along the last axis, which stays with length 1."""
    return (colors @ np.array([0.299, 0.587, 0.114], dtype=np.float32))[..., None]


def _rgb(bias: Bias) -> tuple[int, int, int]:
    red, green, blue = (min(max(value, 0), 255) for value in bias.color)
    return red, green, blue


@SPRITES.register("emoji")
def _emoji(bias: Bias, side: int) -> Image.Image:
    """A smiling face of the given color."""
    big = side * _FINE
    picture = Image.new("RGBA", (big, big))
    pen = ImageDraw.Draw(picture)
    line = max(1, big // 14)

    def box(x0: float, y0: float, x1: float, y1: float) -> tuple[int, int, int, int]:
        return int(x0 * big), int(y0 * big), int(x1 * big) - 1, int(y1 * big) - 1

    pen.ellipse(box(0, 0, 1, 1), fill=(*_rgb(bias), 255), outline=(20, 20, 20, 255), width=line)
    for x in (0.34, 0.66):
        pen.ellipse(box(x - 0.07, 0.28, x + 0.07, 0.48), fill=(20, 20, 20, 255))
    pen.chord(box(0.22, 0.38, 0.78, 0.84), 10, 170, fill=(255, 255, 255, 255))
    pen.arc(box(0.22, 0.38, 0.78, 0.84), 8, 172, fill=(20, 20, 20, 255), width=line)
    return picture.resize((side, side), Image.Resampling.BOX)


@SPRITES.register("text")
def _text(bias: Bias, side: int) -> Image.Image:
    """Letters of the given color and height, like the side marker of a radiograph."""
    font, bold = ImageFont.load_default(size=side * _FINE), side * _FINE // 20
    pen = ImageDraw.Draw(Image.new("L", (1, 1)))
    box = pen.textbbox((0, 0), bias.text or " ", font=font, stroke_width=bold)
    left, top, right, bottom = (round(x) for x in box)
    color = _rgb(bias)
    picture = Image.new("RGBA", (max(1, right - left), max(1, bottom - top)), (*color, 0))
    pen = ImageDraw.Draw(picture)
    pen.text((-left, -top), bias.text, font=font, fill=(*color, 255), stroke_width=bold)
    wide = max(1, round(side * picture.width / picture.height))
    return picture.resize((wide, side), Image.Resampling.BOX)


@SPRITES.register("patch")
def _patch(bias: Bias, side: int) -> Image.Image:
    """A square of the given color."""
    return Image.new("RGBA", (side, side), (*_rgb(bias), 255))


@SPRITES.register("ruler")
def _ruler(bias: Bias, side: int) -> Image.Image:
    """A scale of the given color, as long as the mark is to be, with ticks."""
    big = side * _FINE
    picture = Image.new("RGBA", (big, max(_FINE, big // 4)))
    pen = ImageDraw.Draw(picture)
    line = max(1, big // 24)
    pen.rectangle((0, picture.height - line, big, picture.height), fill=(*_rgb(bias), 255))
    for tick in range(9):
        x = round(tick / 8 * (big - line))
        top = 0 if tick % 4 == 0 else picture.height // 2
        pen.rectangle((x, top, x + line - 1, picture.height), fill=(*_rgb(bias), 255))
    return picture.resize((side, max(1, side // 4)), Image.Resampling.BOX)


@SPRITES.register("electrode")
def _electrode(bias: Bias, side: int) -> Image.Image:
    """A ring of the given color around a dot, and the beginning of a wire."""
    big = side * _FINE
    picture = Image.new("RGBA", (big, big))
    pen = ImageDraw.Draw(picture)
    line = max(1, big // 10)
    pen.ellipse((0, 0, big - 1, big - 1), outline=(*_rgb(bias), 255), width=line)
    middle = big // 2
    pen.ellipse(
        (middle - line, middle - line, middle + line, middle + line), fill=(*_rgb(bias), 255)
    )
    pen.line((middle, middle, big, big), fill=(*_rgb(bias), 255), width=line)
    return picture.resize((side, side), Image.Resampling.BOX)


@SPRITES.register("tape")
def _tape(bias: Bias, side: int) -> Image.Image:
    """A strip of the given color that lets a third of the light through."""
    return Image.new("RGBA", (side, max(1, side // 2)), (*_rgb(bias), 170))


def get_flat_color(bias: Bias, channels: int) -> Floats:
    """The color of a bias for images of so many channels."""
    color = np.array(_rgb(bias), dtype=np.float32)
    return color if channels == 3 else to_gray(color)
