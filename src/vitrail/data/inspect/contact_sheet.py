"""A contact sheet: some images of every class on one picture, to look at before training."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitrail import files
from vitrail.data.image_set import ImageSet

_TILE = 96
_GAP = 4
_TEXT = 16
_MOST_CLASSES = 60


def draw_contact_sheet(images: ImageSet, path: Path, per_class: int = 8) -> None:
    """Write a PNG with one row per class: its name, its count, and its first images."""
    classes = list(enumerate(images.classes))[:_MOST_CLASSES]
    row_height = _TEXT + _TILE + 3 * _GAP
    width = max(per_class * (_TILE + _GAP) + _GAP, 480)
    hidden = len(images.classes) - len(classes)
    sheet = Image.new(
        "RGB", (width, len(classes) * row_height + (2 * _TEXT if hidden else 0)), "white"
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(_TEXT - 3)
    for line, (label, name) in enumerate(classes):
        top = line * row_height
        rows = np.flatnonzero(images.labels == label)
        draw.text((_GAP, top + _GAP), _caption(name, len(rows), draw, font, width), "black", font)
        for place, row in enumerate(rows[:per_class]):
            left = _GAP + place * (_TILE + _GAP)
            sheet.paste(_tile(images.images[row]), (left, top + _TEXT + 2 * _GAP))
    if hidden:
        text = f"and {hidden} more classes"
        draw.text((_GAP, len(classes) * row_height + _GAP), text, "black", font)
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    files.write_bytes(path, buffer.getvalue())


def _tile(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Image.Image:
    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    image = Image.fromarray(np.ascontiguousarray(flat)).convert("RGB")
    how = Image.Resampling.NEAREST if image.width < _TILE else Image.Resampling.BILINEAR
    return image.resize((_TILE, _TILE), how)


def _caption(
    name: str,
    count: int,
    draw: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    width: int,
) -> str:
    """The name and the count; a long name is cut in the middle until it fits."""
    text, keep = f"{name}  ({count})", len(name)
    while draw.textlength(text, font) > width - 2 * _GAP and keep > 2:
        keep -= 1 + keep // 20
        text = f"{name[: keep // 2]}...{name[-(keep - keep // 2) :]}  ({count})"
    return text
