"""From encoded bytes, or a row of an array, to one upright 8-bit picture, grey or RGB.

The rules: values v of more than 8 bits become round(255 v / (2^bits - 1)), with the bits of
`data.bits`, which are decided for a whole data set before any of its pictures is decoded;
floating-point values must lie in [0, 1]; transparency is laid on white; EXIF orientation is
applied; of several frames the first counts. The size is checked before anything is decoded.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from vitrail.config.schema import Data
from vitrail.data.image_set import Array

Payload = Path | bytes | Array
Bits = int | Literal["auto"]

# Only formats that PIL decodes by itself: PostScript, for one, would start another program.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")

_DEEP_MODES = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_GREY_MODES = frozenset({"1", "L", "LA", "La", "F"}) | _DEEP_MODES
_DEPTHS = (8, 10, 12, 14, 16)
_EXIF_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableError(Exception):
    """One image cannot be used; the text says why in a few words."""

    def __init__(self, reason: str, kind: Literal["broken", "missing"] = "broken") -> None:
        self.kind: Literal["broken", "missing"] = kind
        super().__init__(reason)


@dataclass(frozen=True)
class Header:
    """What is known of a picture without decoding it; width and height are upright."""

    width: int
    height: int
    grey: bool
    mode: str
    deep: bool = False  # more than 8 bits: what the largest value means must be decided


@dataclass(frozen=True)
class Decoder:
    """The steps of reading one kind of image file.

    `probe` reads the header and refuses what is too large. `picture` decodes to an upright
    PIL image of mode L or RGB; it may decode at a lower resolution as long as both sides stay
    at least twice `size` (0: full resolution). `highest` is the largest value of an image; None
    where files say themselves what their values mean.
    """

    probe: Callable[[Payload, Data], Header]
    picture: Callable[[Payload, Data, int], Image.Image]
    highest: Callable[[Payload, Data], int | None] | None = None


@contextmanager
def limit_pixels(max_pixels: int) -> Iterator[None]:
    """Let PIL's own bomb check use `max_pixels` for a while; images inside images obey it too."""
    Image.init()
    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        warnings.simplefilter("ignore", UserWarning)
        try:
            Image.MAX_IMAGE_PIXELS = max_pixels
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Whatever a decoder does on hostile bytes becomes one `UnreadableError`."""
    try:
        yield
    except UnreadableError:
        raise
    except FileNotFoundError as err:
        raise UnreadableError("there is no such file", "missing") from err
    except UnidentifiedImageError as err:
        raise UnreadableError("is no image in a format that can be read") from err
    except Image.DecompressionBombError as err:
        raise UnreadableError("has more pixels than data.max_pixels allows") from err
    except Exception as err:
        reason = " ".join(str(err).split())[:120] or type(err).__name__
        raise UnreadableError(f"cannot be decoded ({reason})") from err


def check_size(width: int, height: int, data: Data) -> None:
    """Refuse an image without pixels, or with more than `data.max_pixels`."""
    if width < 1 or height < 1:
        raise UnreadableError(f"has no pixels ({width} x {height})")
    if width * height > data.max_pixels:
        raise UnreadableError(
            f"has {width} x {height} pixels, more than data.max_pixels = {data.max_pixels}"
        )


def refuse_special(path: Path) -> None:
    """Refuse pipes and devices, which would keep a reader waiting forever."""
    if path.exists() and not path.is_file():
        raise UnreadableError("is not a plain file")


def _open(payload: Path | bytes) -> Image.Image:
    if isinstance(payload, Path):
        refuse_special(payload)
    if payload == b"":
        raise UnreadableError("holds no bytes", "missing")
    return Image.open(
        io.BytesIO(payload) if isinstance(payload, bytes) else payload, formats=FORMATS
    )


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation as far as the header tells; PNG's own method would decode it all."""
    return int(Image.Image.getexif(image).get(_EXIF_ORIENTATION, 1))


def _is_grey(image: Image.Image) -> bool:
    if image.mode != "P":
        return image.mode in _GREY_MODES
    colors = np.array(image.getpalette() or [0, 0, 1]).reshape(-1, 3)
    return bool((colors == colors[:, :1]).all())


def _probe(payload: Payload, data: Data) -> Header:
    if isinstance(payload, np.ndarray):
        height, width = payload.shape[:2]
        check_size(width, height, data)
        grey = payload.ndim == 2 or payload.shape[2] == 1
        deep = _is_deep(payload)
        kind = f"array {'L' if grey else 'RGB'}{';16' if deep else ''}"
        return Header(width, height, grey, kind, deep)
    with _translate_errors(), _open(payload) as image:
        width, height = image.size
        check_size(width, height, data)
        if _orientation(image) in (5, 6, 7, 8):
            width, height = height, width
        return Header(width, height, _is_grey(image), image.mode, image.mode in _DEEP_MODES)


def _picture(payload: Payload, data: Data, size: int) -> Image.Image:
    if isinstance(payload, np.ndarray):
        return from_array(payload, data.bits)
    with _translate_errors(), _open(payload) as image:
        check_size(*image.size, data)
        turn = _TURNS.get(_orientation(image))
        if size:
            image.draft(None, (2 * size, 2 * size))
        image.load()
        flat = flatten(image, data.bits)
        return flat if turn is None else flat.transpose(turn)


def _find_highest(payload: Payload, data: Data) -> int | None:
    """The largest value of a deep image; None for one of 8 bits."""
    if isinstance(payload, np.ndarray):
        return int(np.asarray(payload).max()) if _is_deep(payload) and payload.size else None
    with _translate_errors(), _open(payload) as image:
        check_size(*image.size, data)
        return int(np.asarray(image).max()) if image.mode in _DEEP_MODES else None


def _is_deep(values: Array) -> bool:
    return values.dtype.kind in "iu" and values.dtype != np.uint8


PICTURES = Decoder(_probe, _picture, _find_highest)


def choose_depth(highest: int) -> int:
    """The smallest of the usual depths that holds a value."""
    return next((bits for bits in _DEPTHS if highest < 2**bits), _DEPTHS[-1])


def flatten(image: Image.Image, bits: Bits = 16) -> Image.Image:
    """Any PIL mode to L or RGB, transparency on white."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return Image.fromarray(to_bytes(np.asarray(image), bits))
    if image.mode == "P" and "transparency" not in image.info:
        return image.convert("L" if _is_grey(image) else "RGB")
    if image.mode == "P" or "A" in image.mode or "a" in image.mode:
        grey = _is_grey(image)
        rgba = image.convert("RGBA")
        paper = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(paper, rgba).convert("L" if grey else "RGB")
    return image.convert("L" if image.mode == "1" else "RGB")


def to_bytes(values: Array, bits: Bits = 16) -> npt.NDArray[np.uint8]:
    """Pixel values of any numeric type to 8 bits, by the rules at the top of this file.

    With `bits` "auto" these values alone decide, for want of a data set.
    """
    if values.dtype == np.uint8:
        return values.astype(np.uint8, copy=False)
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "f":
        numbers = values.astype(np.float64)
        if not ((numbers >= 0) & (numbers <= 1)).all():
            raise UnreadableError("has floating-point pixels outside of [0, 1]")
        return np.rint(numbers * 255).astype(np.uint8)
    if values.dtype.kind not in "iu":
        raise UnreadableError(f"has pixels of type {values.dtype}")
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise UnreadableError("has integer pixels outside of 0..65535")
    highest = int(values.max()) if values.size else 0
    top = int(2 ** (choose_depth(highest) if bits == "auto" else bits)) - 1
    if highest > top:
        raise UnreadableError(f"has values up to {highest}, more than data.bits = {bits} can hold")
    return ((values.astype(np.uint32) * 255 + top // 2) // top).astype(np.uint8)


def from_array(values: Array, bits: Bits = 16) -> Image.Image:
    """A PIL image of an [H, W], [H, W, 1] or [H, W, 3] array."""
    flat = values[:, :, 0] if values.ndim == 3 and values.shape[2] == 1 else values
    return Image.fromarray(np.ascontiguousarray(to_bytes(flat, bits)))
