"""One extractor for all sites: distances between different latent spaces mean nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.audit.detection.separability import Separability, compute_separability
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation
from vitrail.models.network import Network
from vitrail.rng import Key

CHUNK = 32  # images that go through a network at once
_MOST = 8000  # maps that are remembered; the oldest are forgotten


@torch.inference_mode()
def compute_backbone_maps(network: Network, batches: Iterable[Tensor]) -> Tensor:
    """The backbone's map of each normalized image, [N, D, h, w], before the neck."""
    network.eval()
    maps = []
    for x in batches:
        first = 0
        if network.runtime == "onnx":
            x, first = network.prefix(x, pooled=False), network.cut
        for _, step in network.backbone.stages()[first : network.end]:
            x = step(x)
        maps.append(x)
    return torch.cat(maps).clone()


class Extractor:
    """Maps of images by one backbone. `seen` remembers them: grids meet the same images often."""

    def __init__(
        self, network: Network, normalize: Normalize, seen: dict[bytes, Tensor] | None = None
    ) -> None:
        self.network, self.normalize, self.seen = network, normalize, seen

    def __call__(self, images: npt.NDArray[np.uint8]) -> Tensor:
        """Images [N, H, W, C] to maps [N, D, h, w]."""
        if self.seen is None:
            return self._maps(images)
        names = self._hash_images(images)
        first = {name: at for at, name in enumerate(names) if name not in self.seen}
        if first:
            fresh = self._maps(images[list(first.values())])
            self.seen.update(zip(first, fresh, strict=True))
        maps = torch.stack([self.seen[name] for name in names])
        for name in list(self.seen)[: max(0, len(self.seen) - _MOST)]:
            del self.seen[name]
        return maps

    def _maps(self, images: npt.NDArray[np.uint8]) -> Tensor:
        chunks = (images[at : at + CHUNK] for at in range(0, len(images), CHUNK))
        return compute_backbone_maps(
            self.network, (self.normalize(np.array(part)) for part in chunks)
        )

    def _hash_images(self, images: npt.NDArray[np.uint8]) -> list[bytes]:
        """A name for each image under this very backbone."""
        weights = hashlib.blake2b(repr(self.normalize).encode(), digest_size=32)
        for tensor in self.network.backbone.state_dict().values():
            weights.update(tensor.contiguous().numpy().tobytes())
        salt = weights.digest()
        return [hashlib.blake2b(image.tobytes(), key=salt).digest() for image in images]


def compute_separabilities(
    extractor: Extractor, federation: Federation, key: Key
) -> dict[str, Separability]:
    """Every site's table, each from its own images alone."""
    tables = {}
    images = federation.images
    for site, rows in federation.sites.items():
        held = np.concatenate([rows.train, rows.test])
        maps = extractor(images.images[held])
        labels = torch.from_numpy(images.labels[held])
        tables[site] = compute_separability(maps, labels, len(images.classes), key.at(site))
    return tables
