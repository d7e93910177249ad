"""Prototypes that look at nothing: farther from every patch than patches are from each other."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.models.heads.part_head import PartHead
from vitrail.models.heads.protopnet import ProtoHead


@torch.no_grad()
def find_dead_units(head: PartHead, z: Tensor) -> Tensor:
    """Which units of a head are dead on patches [N, D, H, W], [units] of bool.

    A prototype is if its nearest patch is farther away than a patch is, in the median, from the one
    at the same position of another image. Such a map is flat, and its peak means nothing. Units
    that are no points (subspaces), and a single image, say nothing of this.
    """
    if not isinstance(head, ProtoHead) or len(z) < 2:
        return torch.zeros(len(head.owner), dtype=torch.bool)
    patches = head.embed(z)
    usual = (patches - patches.roll(1, 0)).square().sum(1).median()
    dead: Tensor = head.compute_distances(z).amin((0, 2, 3)) > usual
    return dead.cpu()
