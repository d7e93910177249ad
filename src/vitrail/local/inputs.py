"""What a network is fed: normalized images, or the cached output of its frozen stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.config.schema import Augment
from vitrail.data.augment import augment
from vitrail.data.normalize import Normalize

Rows = npt.NDArray[np.int64]
_PRELOAD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Inputs:
    """All images of a process, read-only, and how rows of them become tensors.

    With `features` ([N, views, ...], maps as [N, views, C, H, W] in either memory order) the
    frozen stages are not run again.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    normalize: Normalize
    augment: Augment = field(default_factory=Augment)
    features: npt.NDArray[np.float32] | None = None
    patients: npt.NDArray[np.int64] | None = None  # the number of each image's patient
    unshared: npt.NDArray[np.float64] | None = None  # [K, 5]: a row, and a box that never leaves
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def views(self) -> int:
        """How many fixed views of an image there are."""
        return 1 if self.features is None else int(self.features.shape[1])

    def plain(self, rows: Rows) -> Tensor:
        """Rows as they are, for evaluation: view 0 of the features, or the normalized images."""
        if self.features is not None:
            return self.pick_views(self.features, rows, 0)
        return self.normalize(self.images[rows]).to(self.device)

    def pick_views(
        self, features: npt.NDArray[np.float32], rows: Rows, views: Rows | int
    ) -> Tensor:
        """One view of each row; maps that lie channels last are copied as they lie."""
        if features.ndim == 5 and not features.flags.c_contiguous:
            maps = features.transpose(0, 1, 3, 4, 2)[rows, views]
            return channels_first(torch.from_numpy(maps).to(self.device))
        return torch.from_numpy(features[rows, views]).to(self.device)

    def targets(self, rows: Rows) -> Tensor:
        """The labels of some rows."""
        return torch.from_numpy(self.labels[rows]).to(self.device)


class Feed:
    """The training images of one site for one phase, ready to be drawn from by position.

    Small sites are converted once and indexed; large ones batch by batch, so that memory
    does not grow with the site.
    """

    def __init__(self, inputs: Inputs, rows: Rows, generator: torch.Generator) -> None:
        self.inputs = inputs
        self.rows = rows
        self.generator = generator
        self.labels = inputs.targets(rows)
        self.views = inputs.views
        source = inputs.images if inputs.features is None else inputs.features
        row_bytes = 4 * int(np.prod(source.shape[1:]))
        self._all: Tensor | None = None
        if self.views == 1 and row_bytes * len(rows) <= _PRELOAD_BYTES:
            self._all = channels_last(inputs.plain(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels at some positions, with the random views asked for."""
        if self._all is not None:
            # Rows as vectors: picking whole maps takes ten times as long.
            picked = self._all.flatten(1).index_select(0, at.to(self._all.device))
            x = channels_first(picked.view(len(at), *self._all.shape[1:]))
        elif self.views > 1 and self.inputs.features is not None:
            view = torch.randint(self.views, (len(at),), generator=self.generator)
            x = self.inputs.pick_views(self.inputs.features, self.rows[at.numpy()], view.numpy())
        else:
            x = self.inputs.plain(self.rows[at.numpy()])
        if self.inputs.augment.active and self.inputs.features is None:
            x = augment(x, self.inputs.augment, self.generator)
        return x, self.labels[at]


def to_file_layout(maps: Tensor) -> npt.NDArray[np.float32]:
    """Features as they are kept in a file: maps channels last, the order training reads them in."""
    array: npt.NDArray[np.float32] = channels_last(maps).numpy()
    return array


def load_features(path: str | Path) -> npt.NDArray[np.float32]:
    """Map a file of features; maps are seen as [N, views, C, H, W]."""
    features: npt.NDArray[np.float32] = np.load(path, mmap_mode="r")
    return features.transpose(0, 1, 4, 2, 3) if features.ndim == 5 else features


def channels_last(x: Tensor) -> Tensor:
    """Maps as [N, H, W, C] in memory order, so that picking rows keeps their layout."""
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x


def channels_first(x: Tensor) -> Tensor:
    """Back to [N, C, H, W] without moving a byte."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def draw_epoch(count: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """Positions of one shuffled epoch in batches; a last batch of one joins the one before it.

    BatchNorm has no variance over a single image, so one image never stands alone unless it
    is all there is, or batches of one are what was asked for.
    """
    order = torch.randperm(count, generator=generator)
    batches = list(torch.split(order, batch_size)) if count else []
    if len(batches) > 1 and len(batches[-1]) == 1 < batch_size:
        tail = batches.pop()
        batches[-1] = torch.cat([batches[-1], tail])
    return batches
