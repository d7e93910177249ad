"""Prototypes that mean the same at every site though each has add-on layers of its own.

A home neck turns the space that prototypes live in. Each site fits the rotation from its own space
to that of the public start, on patches of public anchor images, and sends its prototypes there;
what arrives is turned back. The neck and the rotation stay at the site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vitrail.geometry.rotation import Turn, fit_turn
from vitrail.geometry.slots import match_slots
from vitrail.local.phases.phase import DataAccess
from vitrail.local.phases.push import get_prototype_head
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.flat import FlatModel, keep_statistics
from vitrail.models.network import Network

ANCHORS = "anchors/pixels"  # what the server sends: [images, H, W, C], uint8
INPUTS, START = "anchors/inputs", "anchors/start"  # what a site keeps of it
RESIDUAL = "alignment_residual"
VECTORS = "model/head.vectors"
PULLED = 8  # anchors in a step
PATCHES_PER_CHANNEL = 5  # fewer anchor patches than this do not fix a rotation


@torch.no_grad()
def list_patches(network: Network, x: Tensor) -> Tensor:
    """The patches of some inputs as prototypes are compared with them, [images x places, D]."""
    network.eval()
    z = get_prototype_head(network).embed(network.features(x))
    return z.flatten(2).movedim(1, 2).flatten(0, 1)


def fit_home_turn(site: Site) -> Turn | None:
    """From the site's space to the public one; None for a site that trains alone."""
    if START not in site.state:
        return None
    x = site.state[INPUTS].to(site.inputs.device)
    return fit_turn(list_patches(site.model.network, x), site.state[START])


def keep_anchors(site: Site) -> None:
    """Keep the anchors that arrived, and their patches in the space that everybody starts from."""
    network = site.model.network
    x = network.prefix(site.inputs.normalize(site.down[ANCHORS]).to(site.inputs.device))
    site.state[INPUTS] = x.cpu().contiguous()
    site.state[START] = list_patches(network, x).cpu()


class AnchorPull:
    """A pull: the gradient of `weight` times the mean squared distance between a few anchors'
    patches and where the public start puts them, so that a home neck stays near a rotation of it.
    """

    def __init__(self, site: Site, weight: float) -> None:
        device = site.inputs.device
        self.weight, self.x = weight, site.state[INPUTS].to(device)
        self.start = site.state[START].to(device).view(len(self.x), -1, site.state[START].shape[1])
        self.generator = site.key.at("anchors").torch()

    def __call__(self, model: FlatModel) -> None:
        """Add it to the gradient of the site's own batch."""
        self.compute_loss(model.network).backward()  # type: ignore[no-untyped-call]

    def compute_loss(self, network: Network) -> Tensor:
        """The weighted loss on the next few anchors."""
        at = torch.randperm(len(self.x), generator=self.generator)[:PULLED]
        with keep_statistics(network):
            z = get_prototype_head(network).embed(network.features(self.x[at]))
        gaps = z.flatten(2).movedim(1, 2) - self.start[at]
        return self.weight * gaps.square().sum(2).mean()


@dataclass(frozen=True)
class TurnToPublic:
    """Before sending: prototypes into the public space, each in the slot of its class that it is
    nearest to; columns of the last layer move along."""

    name: str = "to-public"
    sees: ClassVar[DataAccess] = "nothing"
    sends: ClassVar[bool] = True

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Reports how much of the public space no rotation of the home one explains."""
        turn = fit_home_turn(site)
        if turn is None:
            return {}
        head = get_prototype_head(site.model.network)
        vectors = turn.apply(head.embed(head.vectors.detach()).cpu())
        order = torch.arange(len(vectors))
        if bool(vectors.isfinite().all()):
            order = match_slots(vectors, site.down[VECTORS].cpu(), ctx.classes)
        head.vectors.data.copy_(vectors[order])
        head.weight.data.copy_(head.weight.data[:, order])
        head.mask.data.copy_(head.mask.data[order])
        return {RESIDUAL: turn.residual}


@dataclass(frozen=True)
class TurnHome:
    """On arrival: prototypes back from the public space into the site's own. The `last` time the
    anchors go; a site's model has no need of them."""

    last: bool = False
    name: str = "to-home"
    sees: ClassVar[DataAccess] = "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Nothing to do for a site that trains alone."""
        del ctx
        turn = fit_home_turn(site)
        if turn is None:
            return {}
        head = get_prototype_head(site.model.network)
        head.vectors.data.copy_(turn.undo(head.vectors.detach().cpu()))
        for name in (INPUTS, START) if self.last else ():
            del site.state[name]
        return {RESIDUAL: turn.residual}
