"""Which image each shared one was made of: for scoring only, from the data source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.attack.shared_images.shared_table import SharedTable, group_by_view
from vitrail.attack.true_images import Rows, to_unit_range
from vitrail.engine.federation import Federation
from vitrail.errors import RunError
from vitrail.rng import Key


@dataclass(frozen=True)
class Originals:
    """Shared images of all views beside the images they were made of, and images nobody shared.

    `shared` is [views, N, C, H, W], `images` [N, C, H, W], `others` [K, C, H, W]; `targets` [N] are
    the labels that came with shared images.
    """

    shared: Tensor
    images: Tensor
    others: Tensor
    rows: Rows
    targets: Tensor


def select_originals(table: SharedTable, federation: Federation, count: int, key: Key) -> Originals:
    """At most `count` of the shared images, drawn over all sites, and as many test images."""
    shared, rows, targets = [], [], []
    for site_set in table.sets:
        train = federation.sites[site_set.site].train
        shared.append(group_by_view(site_set, len(train)))
        rows.append(train)
        targets.append(site_set.targets[: len(train)])
    views = min(len(pixels) for pixels in shared)
    every = torch.cat([pixels[:views] for pixels in shared], 1)
    at = np.sort(key.at("shared").numpy().permutation(every.shape[1])[:count])
    sites = federation.sites.values()
    tested = np.concatenate([*(site.test for site in sites), federation.server_test])
    if not len(tested):
        raise RunError(
            "this run held no image back, so that there is none that nobody shared",
            where=str(table.server.run.path),
            hint="Set partition.test_fraction, or use data with a test split.",
        )
    unshared = key.at("others").numpy().permutation(tested)[:count]
    chosen = np.concatenate(rows)[at]
    images = federation.images.images
    picked = torch.from_numpy(at)
    seen = torch.cat(targets)[picked]
    return Originals(
        every[:, picked],
        to_unit_range(images[chosen]),
        to_unit_range(images[unshared]),
        chosen,
        seen,
    )
