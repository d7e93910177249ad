"""Pruning: a prototype whose nearest patches are mostly of other classes is masked out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.local.evaluate import CHUNK, seen
from vitrail.local.inputs import Inputs, Rows
from vitrail.local.push import head_of
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.network import Network
from vitrail.models.protopnet import squared_distances


@torch.no_grad()
def keep(network: Network, inputs: Inputs, rows: Rows, nearest: int, own: int) -> Tensor:
    """Which prototypes have at least `own` of their `nearest` images' patches in their class.

    One patch an image, its closest one. With fewer images than `nearest` all of them are looked
    at, and the share of its own class that is wanted stays the same.
    """
    head = head_of(network)
    network.eval()
    if not len(rows):
        return head.alive()
    found = [
        squared_distances(seen(network, inputs, rows[at : at + CHUNK]), head.vectors).amin((2, 3))
        for at in range(0, len(rows), CHUNK)
    ]
    distances = torch.cat(found)
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
        head = head_of(site.model.network)
        kept = keep(site.model.network, site.inputs, site.rows.train, self.nearest, self.own)
        present = torch.isin(head.owner, site.inputs.targets(site.rows.train))
        kept |= ~present  # nothing here speaks for or against a class nobody here has
        head.mask.mul_(kept.to(head.mask.dtype))
        return {"pruned": float((~kept).double().mean())}
