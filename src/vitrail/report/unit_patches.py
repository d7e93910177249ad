"""The patches of training images in which each unit of a model is most active."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.explain.evidence import Box, find_box
from vitrail.models.heads.part_head import require_part_head
from vitrail.report.viewer import ReportView, Rows

_LOOKED = 40  # training images of a class that are looked through, the first ones
_CHUNK = 40


@dataclass(frozen=True)
class UnitPatch:
    """One patch: the image's row, the box of the unit's activation, how active it is."""

    row: int
    box: Box
    score: float


@torch.no_grad()
def find_unit_patches(view: ReportView, count: int) -> Mapping[int, list[UnitPatch]]:
    """For every unit its `count` strongest patches among training images of its own class."""
    head = require_part_head(view.explainer.model.network)
    owner = head.owner.tolist()
    patches: dict[int, list[UnitPatch]] = {}
    for label in sorted(set(owner)):
        units = [unit for unit, label_of_unit in enumerate(owner) if label_of_unit == label]
        rows = view.train[view.images.labels[view.train] == label][:_LOOKED]
        if len(rows):
            maps = _compute_maps(view, rows)[:, units]
            for at, unit in enumerate(units):
                patches[unit] = _select_strongest(maps[:, at], rows, count, view)
    return patches


def _compute_maps(view: ReportView, rows: Rows) -> Tensor:
    """Every unit's activation on some images, [N, units, H, W]."""
    network = view.explainer.model.network
    head = require_part_head(network)
    parts = []
    for start in range(0, len(rows), _CHUNK):
        x = normalize_rows(view, rows[start : start + _CHUNK])
        parts.append(head.maps(network.features(network.prefix(x))))
    return torch.cat(parts)


def normalize_rows(view: ReportView, rows: Rows) -> Tensor:
    """Images as the network takes them, [N, C, H, W]."""
    model = view.explainer.model
    pixels = torch.from_numpy(np.array(view.images.images[rows])).permute(0, 3, 1, 2)
    return (pixels.to(torch.float32) / 255 - model.shift) / model.scale


def _select_strongest(maps: Tensor, rows: Rows, count: int, view: ReportView) -> list[UnitPatch]:
    peaks = maps.flatten(1).amax(1)
    height, width = view.images.images.shape[1:3]
    order = torch.argsort(peaks, descending=True, stable=True)[:count].tolist()
    return [
        UnitPatch(int(rows[at]), find_box(maps[at], (height, width)), float(peaks[at]))
        for at in order
    ]
