"""The patches of training images in which each unit of a model is most active."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.explain.evidence import Box, box_of
from vitrail.models.pieces import part_head
from vitrail.report.document.window import Rows, Window

_LOOKED = 40  # training images of a class that are looked through, the first ones
_CHUNK = 40


@dataclass(frozen=True)
class Ground:
    """One patch: the image's row, the box of the unit's activation, how active it is."""

    row: int
    box: Box
    score: float


@torch.no_grad()
def grounds(seen: Window, each: int) -> Mapping[int, list[Ground]]:
    """For every unit its `each` strongest patches among training images of its own class."""
    head = part_head(seen.explainer.model.network)
    owner = head.owner.tolist()
    found: dict[int, list[Ground]] = {}
    for label in sorted(set(owner)):
        mine = [unit for unit, of in enumerate(owner) if of == label]
        rows = seen.train[seen.images.labels[seen.train] == label][:_LOOKED]
        if len(rows):
            maps = _maps(seen, rows)[:, mine]
            for at, unit in enumerate(mine):
                found[unit] = _strongest(maps[:, at], rows, each, seen)
    return found


def _maps(seen: Window, rows: Rows) -> Tensor:
    """Every unit's activation on some images, [N, units, H, W]."""
    network = seen.explainer.model.network
    head = part_head(network)
    parts = []
    for start in range(0, len(rows), _CHUNK):
        x = normalized_rows(seen, rows[start : start + _CHUNK])
        parts.append(head.maps(network.features(network.prefix(x))))
    return torch.cat(parts)


def normalized_rows(seen: Window, rows: Rows) -> Tensor:
    """Images as the network takes them, [N, C, H, W]."""
    model = seen.explainer.model
    pixels = torch.from_numpy(np.array(seen.images.images[rows])).permute(0, 3, 1, 2)
    return (pixels.to(torch.float32) / 255 - model.shift) / model.scale


def _strongest(maps: Tensor, rows: Rows, each: int, seen: Window) -> list[Ground]:
    peaks = maps.flatten(1).amax(1)
    height, width = seen.images.images.shape[1:3]
    order = torch.argsort(peaks, descending=True, stable=True)[:each].tolist()
    return [
        Ground(int(rows[at]), box_of(maps[at], (height, width)), float(peaks[at])) for at in order
    ]
