"""One extractor for all sites: distances between different latent spaces mean nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.audit.contrast import Contrast, contrasts
from vitrail.audit.desk import CHUNK
from vitrail.audit.separability import Separability, separability
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation
from vitrail.models.network import Network
from vitrail.rng import Key


@torch.inference_mode()
def feature_maps(network: Network, normalize: Normalize, images: npt.NDArray[np.uint8]) -> Tensor:
    """The backbone's map of each image, [N, D, h, w], before any layer that a site trained."""
    network.eval()
    found = []
    for start in range(0, len(images), CHUNK):
        x = normalize(np.array(images[start : start + CHUNK]))
        for _, step in network.backbone.stages()[: network.end]:
            x = step(x)
        found.append(x)
    return torch.cat(found).clone()


def tables_of(
    network: Network, normalize: Normalize, federation: Federation, key: Key
) -> dict[str, Separability]:
    """Every site's table, each from its own images alone."""
    found = {}
    classes = len(federation.images.classes)
    for site, rows in federation.sites.items():
        mine = np.concatenate([rows.train, rows.test])
        maps = feature_maps(network, normalize, federation.images.images[mine])
        labels = torch.from_numpy(federation.images.labels[mine])
        found[site] = separability(maps, labels, classes, key.at(site))
    return found


def all_contrasts(tables: Mapping[str, Separability]) -> dict[str, list[Contrast]]:
    """Each site against all others."""
    return {site: contrasts(tables, site) for site in tables}
