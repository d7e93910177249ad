"""Photographs in the report: each is stored once, shown wherever it is needed, and countable.

Every pixel of an image that a report holds passes through here or through `sights`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from PIL import Image
from torch import Tensor

from vitrail.data.images import ImageSet
from vitrail.explain.evidence import Box
from vitrail.report.document.markup import Html, el, join
from vitrail.report.evidence_html import drawing, framed, heat, shaded, store

_SIDE = 224  # pixels that a report keeps of a longer side


@dataclass
class Photos:
    """The images of one run that its report shows."""

    name: str
    images: ImageSet | None = None
    _stored: dict[int, Html] = field(default_factory=dict)

    def framed(self, row: int, box: Box, label: str) -> Html:
        """An image with a box, everything else in shadow; it can be enlarged."""
        size = self._size()
        return self._zoom(row, label, shaded(size, box) + framed(box))

    def marked(self, row: int, boxes: list[Box], label: str) -> Html:
        """An image with some boxes."""
        return self._zoom(row, label, "".join(framed(box) for box in boxes))

    def heated(self, row: int, map_: Tensor, label: str) -> Html:
        """An image, gray, under a map."""
        height, width = self._size()
        return self._zoom(row, label, "", heat(map_, (0.0, 0.0, float(width), float(height))))

    def stored(self) -> Html:
        """All photographs that were asked for; to be put before what shows them."""
        return join(self._stored.values())

    def _size(self) -> tuple[int, int]:
        assert self.images is not None
        height, width = self.images.images.shape[1:3]
        return int(height), int(width)

    def _zoom(self, row: int, label: str, inside: str, over: str = "") -> Html:
        assert self.images is not None
        name = f"{self.name}-t{row}"
        if row not in self._stored:
            pixels = np.array(self.images.images[row])
            picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
            picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
            self._stored[row] = Html(store(name, picture, self._size()))
        drawn = Html(drawing(name, self._size(), label, inside, over))
        return el("button", drawn, type="button", class_="zoom", aria_label=f"Enlarge: {label}")
