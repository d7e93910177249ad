"""MOON: features stay close to the received model's and away from the site's last ones."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from vitrail.local.session import Context, Site
from vitrail.local.terms import Batch, LossTerm, Terms
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.models.flat import FlatModel
from vitrail.models.heads.head import Outputs
from vitrail.models.network import Network


class MoonOptions(Options):
    """`mu` weighs the contrast, `temperature` sharpens it."""

    mu: Annotated[float, Field(ge=0)] = 1.0
    temperature: Annotated[float, Field(gt=0)] = 0.5


@METHODS.register("moon")
class Moon(Method):
    """Adds a cross entropy over cosine(z, z_global) and cosine(z, z_previous), for the first.

    z are the pooled features; a site's first turn has no previous model and no contrast.
    """

    summary = "FedAvg with a contrast between the received and the site's last features"
    paper = "Li et al. 2021, arXiv:2103.16257"
    Options = MoonOptions

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """The contrast, once there is a model of the site's own to move away from."""
        before = site.state.get("previous")
        if before is None:
            return Terms()
        received = _copy_frozen(site.model, site.received)
        previous = _copy_frozen(site.model, before.to(site.received.device))
        return Terms(loss=(self._make_contrast(received, previous),))

    def end(self, site: Site, ctx: Context) -> dict[str, Tensor]:
        """Remember this turn's model."""
        site.state["previous"] = site.model.values.detach().cpu().clone()
        return {}

    def _make_contrast(self, received: Network, previous: Network) -> LossTerm:
        mu, temperature = self.options.mu, self.options.temperature

        def term(outputs: Outputs, batch: Batch) -> Tensor:
            z = outputs["features"]
            with torch.no_grad():
                near, far = received.features(batch[0]), previous.features(batch[0])
            pair = [F.cosine_similarity(z, other) for other in (near, far)]
            logits = torch.stack(pair, dim=1) / temperature
            first = torch.zeros(len(z), dtype=torch.long, device=z.device)
            contrast: Tensor = mu * F.cross_entropy(logits, first)
            return contrast

        return term


def _copy_frozen(model: FlatModel, values: Tensor) -> Network:
    """A copy of the network that holds other values and is not trained."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        network.load_state_dict({**network.state_dict(), **model.layout.views(values)})
    return network.eval().requires_grad_(False)
