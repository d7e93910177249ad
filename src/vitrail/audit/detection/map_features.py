"""What a backbone that all sites know sees: early maps at full resolution, and its last map."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.audit.detection.feature_layout import Block, make_place_block, make_whole_block
from vitrail.models.network import Network
from vitrail.rng import Key

_EARLY_CELLS, _LATE_CELLS = 8, 7  # a side at most
_EARLY, _LATE, _ANYWHERE = 12, 32, 48  # projections of the channels


@torch.inference_mode()
def compute_maps(network: Network, batches: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Of each normalized image an early map, pooled to 8 x 8 cells, and the backbone's last.

    The early map is that of the last stage whose cells are at most four pixels wide.
    """
    network.eval()
    early, late = [], []
    for x in batches:
        side, kept = max(x.shape[2:]), None
        for _, step in network.backbone.stages()[: network.end]:
            x = step(x)
            if kept is None or 4 * max(x.shape[2:]) >= side:
                kept = x
        if kept is None:
            kept = x
        early.append(_shrink(kept, _EARLY_CELLS))
        late.append(x)
    return torch.cat(early).clone(), torch.cat(late).clone()


def make_map_blocks(early: Tensor, late: Tensor, key: Key) -> list[Block]:
    """Early and late channels by place, late ones over the image, and their extremes anywhere."""
    cells = _project(late, _LATE, key.at("late"))
    many = _project(late, _ANYWHERE, key.at("anywhere")).flatten(2)
    return [
        make_place_block("early map", _project(early, _EARLY, key.at("early"))),
        make_place_block("map", _shrink(cells, _LATE_CELLS)),
        make_whole_block("map as a whole", "image-wide", many.mean(2)),
        make_whole_block("parts anywhere", "anywhere", torch.cat([many.amax(2), many.amin(2)], 1)),
    ]


def _shrink(maps: Tensor, cells: int) -> Tensor:
    size = (min(cells, maps.shape[2]), min(cells, maps.shape[3]))
    return F.adaptive_avg_pool2d(maps, size)


def _project(maps: Tensor, most: int, key: Key) -> Tensor:
    """At most so many channels, by a Gaussian projection that all sites draw alike."""
    channels = maps.shape[1]
    if channels <= most:
        return maps
    draw = torch.randn(most, channels, generator=key.torch()) / channels**0.5
    return torch.einsum("kd,ndhw->nkhw", draw.to(maps.dtype), maps)
