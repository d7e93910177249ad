"""A start of the site's own for the add-on layers, instead of the one everybody shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vitrail.local.phases.phase import DataAccess
from vitrail.local.phases.push import get_prototype_head
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.heads.addon import initialize
from vitrail.rng import seed_torch


@dataclass(frozen=True)
class Restart:
    """Draw the neck anew from the site's own secret."""

    name: str = "restart"
    sees: ClassVar[DataAccess] = "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Overwrite the neck in place."""
        del ctx
        with seed_torch(site.key.at(self.name)):
            network = site.model.network
            initialize(network.neck, get_prototype_head(network).options.gain)
        return {}
