"""The true images, for scoring only: they come from the data source, never from a site's folder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.attack.identification import Draw, list_draws
from vitrail.engine.federation import Federation
from vitrail.rng import Key
from vitrail.secure_aggregation.secure_sum import ALL_SITES

Rows = npt.NDArray[np.int64]
_OTHERS = 200  # images of others among which a reconstruction must find its own


@dataclass(frozen=True)
class Truth:
    """A site's training images from 0 to 1 and their labels, and images of others."""

    images: Tensor  # [m, C, H, W]
    labels: Tensor  # [m]
    others: Tensor  # [o, C, H, W]
    rows: Rows
    other_labels: Tensor  # [o]

    def list_draws(self, recovered: Tensor) -> tuple[list[Draw], int]:
        """What recovered images are nearest to, for a test of whether that is luck."""
        return list_draws(recovered, self.images, self.labels, self.others, self.other_labels)

    @property
    def random(self) -> Tensor:
        """For each of the site's images some other image: what guessing gives."""
        pool = self.others if len(self.others) else self.images.flip(-1)
        return pool[torch.arange(len(self.images)) % len(pool)]

    @property
    def mean(self) -> Tensor:
        """The mean of the others' images, once for each image: what caution gives."""
        pool = self.others if len(self.others) else torch.full_like(self.images[:1], 0.5)
        return pool.mean(0, keepdim=True).expand(len(self.images), *pool.shape[1:]).contiguous()


def load_truth(federation: Federation, site: str, key: Key) -> Truth:
    """What a site trained on, and some images of the others, drawn from `key`."""
    if site == ALL_SITES:
        rows = np.concatenate([part.train for part in federation.sites.values()])
    else:
        rows = federation.sites[site].train
    return load_truth_at(federation, rows, key)


def load_truth_at(federation: Federation, rows: Rows, key: Key) -> Truth:
    """Some rows as if they were a site's, and images of others."""
    rest = np.setdiff1d(np.arange(len(federation.images)), rows)
    chosen = key.at("others").numpy().permutation(rest)[:_OTHERS]
    images = federation.images
    return Truth(
        to_unit_range(images.images[rows]),
        torch.from_numpy(images.labels[rows].astype(np.int64)),
        to_unit_range(images.images[chosen]),
        rows,
        torch.from_numpy(images.labels[chosen].astype(np.int64)),
    )


def to_unit_range(images: npt.NDArray[np.uint8]) -> Tensor:
    """uint8 [N, H, W, C] to [N, C, H, W] from 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255.0
