"""A start of the site's own for the add-on layers, instead of the one everybody shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vitrail.local.phases import Sees
from vitrail.local.push import head_of
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.addon import initialize
from vitrail.rng import scope


@dataclass(frozen=True)
class Restart:
    """Draw the neck anew from the site's own secret."""

    name: str = "restart"
    sees: ClassVar[Sees] = "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Overwrite the neck in place."""
        del ctx
        with scope(site.key.at(self.name)):
            network = site.model.network
            initialize(network.neck, head_of(network).options.gain)
        return {}
