"""Pruning: a prototype whose nearest patches are mostly of other classes is masked out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.local.evaluate import CHUNK, compute_features
from vitrail.local.inputs import Inputs, Rows
from vitrail.local.phases.push import get_prototype_head
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.network import Network


@torch.no_grad()
def find_kept_prototypes(
    network: Network, inputs: Inputs, rows: Rows, nearest: int, own: int
) -> Tensor:
    """Which prototypes have at least `own` of their `nearest` images' patches in their class.

    One patch an image, its closest one. With fewer images than `nearest` all of them are looked
    at, and the share of its own class that is wanted stays the same.
    """
    head = get_prototype_head(network)
    network.eval()
    if not len(rows):
        return head.alive()
    chunks = [
        head.compute_distances(compute_features(network, inputs, rows[at : at + CHUNK])).amin(
            (2, 3)
        )
        for at in range(0, len(rows), CHUNK)
    ]
    distances = torch.cat(chunks)
    count = min(nearest, len(rows))
    closest = distances.topk(count, dim=0, largest=False).indices  # [count, m]
    labels = inputs.targets(rows)[closest]
    return (labels == head.owner).sum(0) * nearest >= own * count


@dataclass(frozen=True)
class Prune:
    """Mask prototypes out: of the `nearest` patches fewer than `own` of the own class."""

    nearest: int = 6
    own: int = 3
    name: str = "prune"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Change the mask by what the site's own images say; shapes stay as they are."""
        del ctx
        head = get_prototype_head(site.model.network)
        kept = find_kept_prototypes(
            site.model.network, site.inputs, site.rows.train, self.nearest, self.own
        )
        present = torch.isin(head.owner, site.inputs.targets(site.rows.train))
        kept |= ~present  # nothing here speaks for or against a class nobody here has
        head.mask.mul_(kept.to(head.mask.dtype))
        return {"pruned": float((~kept).double().mean())}
