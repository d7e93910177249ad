"""Photographs in the report: each is stored once, shown wherever it is needed, and countable.

Every pixel of an image that a report holds passes through here or through `audit_pictures`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from PIL import Image
from torch import Tensor

from vitrail.data.image_set import ImageSet
from vitrail.explain.evidence import Box
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import (
    draw_box,
    draw_heat,
    draw_photo,
    draw_shade,
    store_photo,
)

_SIDE = 224  # pixels that a report keeps of a longer side


@dataclass
class Photos:
    """The images of one run that its report shows."""

    name: str
    images: ImageSet | None = None
    _stored: dict[int, Html] = field(default_factory=dict)

    def draw_framed(self, row: int, box: Box, label: str) -> Html:
        """An image with a box, everything else in shadow; it can be enlarged."""
        size = self._get_size()
        return self._draw_zoomable(row, label, join([draw_shade(size, box), draw_box(box)]))

    def draw_marked(self, row: int, boxes: list[Box], label: str) -> Html:
        """An image with some boxes."""
        return self._draw_zoomable(row, label, join(draw_box(box) for box in boxes))

    def draw_heated(self, row: int, map_: Tensor, label: str) -> Html:
        """An image, gray, under a map."""
        height, width = self._get_size()
        return self._draw_zoomable(
            row, label, None, draw_heat(map_, (0.0, 0.0, float(width), float(height)))
        )

    def render_store(self) -> Html:
        """All photographs that were asked for; to be put before what shows them."""
        return join(self._stored.values())

    def _get_size(self) -> tuple[int, int]:
        assert self.images is not None
        height, width = self.images.images.shape[1:3]
        return int(height), int(width)

    def _draw_zoomable(
        self, row: int, label: str, marks: Html | None, heat: Html | None = None
    ) -> Html:
        assert self.images is not None
        name = f"{self.name}-t{row}"
        if row not in self._stored:
            pixels = np.array(self.images.images[row])
            picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
            picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
            self._stored[row] = store_photo(name, picture, self._get_size())
        drawn = draw_photo(name, self._get_size(), label, marks, heat)
        return el("button", drawn, type="button", class_="zoom", aria_label=f"Enlarge: {label}")
