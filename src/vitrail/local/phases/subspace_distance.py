"""How far a site's own subspaces are from those the federation agreed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vitrail.geometry import grassmann
from vitrail.local.phases.phase import DataAccess
from vitrail.local.session import Context, Metrics, Site

SENT, DISTANCE = "subspaces/sent", "subspaces/distance"
FRAMES = "head.frames"


def keep_sent(site: Site) -> None:
    """Remember the subspaces this site sends, to be compared with what comes back."""
    site.state[SENT] = site.model.named[FRAMES].detach().cpu().clone()


@dataclass(frozen=True)
class Distance:
    """Geodesic distances between what the site sent last and what arrived, by class.

    They stay at the site, under `subspaces/distance`; only their mean is a figure.
    """

    name: str = "distance"
    sees: ClassVar[DataAccess] = "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Compare; a site that never sent anything, or whose training broke, has nothing to
        compare."""
        del ctx
        sent = site.state.get(SENT)
        if sent is None or not bool(torch.isfinite(sent).all()):
            return {}
        arrived = site.model.named[FRAMES].detach().cpu()
        distances = grassmann.geodesic_distance(sent.double(), arrived.double())
        site.state[DISTANCE] = distances.to(torch.float32)
        return {"subspace_distance": float(distances.mean())}
