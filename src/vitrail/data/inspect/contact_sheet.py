"""A contact sheet: some images of every class on one picture, to look at before training."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitrail import files
from vitrail.data.image_set import ImageSet

_GAP = 4
_TEXT = 16
_WIDE_CLASSES = 60  # beyond so many, classes stand side by side in small tiles
_NARROW = 480


@dataclass(frozen=True)
class _Grid:
    """Where the cell of each class lies: tiles of one size in a row, below its name."""

    tile: int
    per_class: int
    columns: int

    @property
    def width(self) -> int:
        return max(self.per_class * (self.tile + _GAP) + _GAP, _NARROW // self.columns)

    @property
    def height(self) -> int:
        return _TEXT + self.tile + 3 * _GAP

    def corner(self, at: int) -> tuple[int, int]:
        return at % self.columns * self.width, at // self.columns * self.height


def draw_contact_sheet(images: ImageSet, path: Path, per_class: int = 8) -> None:
    """Write a PNG with a cell for every class: its name, its count, and its first images."""
    count = len(images.classes)
    grid = _Grid(96, per_class, 1) if count <= _WIDE_CLASSES else _Grid(48, min(per_class, 4), 5)
    lines = -(-count // grid.columns)
    sheet = Image.new("RGB", (grid.columns * grid.width, lines * grid.height), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(_TEXT - 3)
    for label, name in enumerate(images.classes):
        left, top = grid.corner(label)
        rows = np.flatnonzero(images.labels == label)
        caption = _caption(name, len(rows), draw, font, grid.width)
        draw.text((left + _GAP, top + _GAP), caption, "black", font)
        for place, row in enumerate(rows[: grid.per_class]):
            corner = left + _GAP + place * (grid.tile + _GAP), top + _TEXT + 2 * _GAP
            sheet.paste(_tile(images.images[row], grid.tile), corner)
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    files.write_bytes(path, buffer.getvalue())


def _tile(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], side: int) -> Image.Image:
    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    image = Image.fromarray(np.ascontiguousarray(flat)).convert("RGB")
    how = Image.Resampling.NEAREST if image.width < side else Image.Resampling.BILINEAR
    return image.resize((side, side), how)


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
