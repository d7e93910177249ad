"""All features of an image that an audit compares, and the units they form.

Every site computes them alike: the backbone is one that all know, and whatever is drawn at random
comes from the run's seed. Nothing is fitted to anybody's images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.audit.detection.feature_layout import Block, Unit, join_units
from vitrail.audit.detection.image_features import make_image_blocks
from vitrail.audit.detection.map_features import compute_maps, make_map_blocks
from vitrail.audit.detection.peak_features import make_peak_blocks
from vitrail.audit.detection.pixel_features import make_texture_block, make_tone_block
from vitrail.data.normalize import Normalize
from vitrail.models.network import Network
from vitrail.rng import Key

Pixels = npt.NDArray[np.uint8]
CHUNK = 32  # images that go through a network at once


class FeatureExtractor:
    """Features of images [N, H, W, C] by one backbone; `seen` remembers them by their bytes."""

    def __init__(
        self,
        network: Network,
        normalize: Normalize,
        key: Key,
        seen: MutableMapping[bytes, Tensor] | None = None,
    ) -> None:
        self.network, self.normalize, self.key, self.seen = network, normalize, key, seen
        self._units: tuple[Unit, ...] | None = None

    def __call__(self, images: Pixels) -> Tensor:
        """One row an image, [N, F], float32."""
        if self.seen is None:
            return self._compute(images)
        names = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images]
        fresh = {name: at for at, name in enumerate(names) if name not in self.seen}
        if fresh:
            rows = self._compute(images[list(fresh.values())])
            self.seen.update(zip(fresh, rows, strict=True))
        return torch.stack([self.seen[name] for name in names])

    def get_units(self, images: Pixels) -> tuple[Unit, ...]:
        """The units of the features of such images."""
        if self._units is None:
            self._compute(images[:1])
        assert self._units is not None
        return self._units

    @torch.inference_mode()
    def _compute(self, images: Pixels) -> Tensor:
        rows = []
        for part in _split(images):
            blocks = self._make_blocks(np.array(part))
            rows.append(torch.cat([block.values for block in blocks], 1).to(torch.float32))
            if self._units is None:
                self._units = join_units(blocks)
        return torch.cat(rows).clone()

    def _make_blocks(self, images: Pixels) -> list[Block]:
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32) / 255
        early, late = compute_maps(self.network, [self.normalize(images)])
        return [
            make_tone_block(pixels),
            make_texture_block(pixels),
            *make_image_blocks(pixels),
            *make_peak_blocks(pixels, self.key.at("peaks")),
            *make_map_blocks(early, late, self.key.at("maps")),
        ]


def _split(images: Pixels) -> Iterator[Pixels]:
    for start in range(0, len(images), CHUNK):
        yield images[start : start + CHUNK]
