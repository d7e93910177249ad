"""SCAFFOLD: control variates correct the drift of each site."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.errors import ConfigError
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.methods.method import METHODS, Method
from vitrail.methods.pulls import constant
from vitrail.methods.server import Server
from vitrail.models.flat import Region
from vitrail.release.message import Field


@METHODS.register("scaffold")
class Scaffold(Method):
    """y <- y - eta (g - c_i + c); then c_i' = c_i - c + (x - y) / (steps eta), option II.

    All controls start at zero. The correction is exact for plain SGD only, so momentum,
    weight decay, Adam and several rates are refused.
    """

    summary = "control variates correct the drift of each site"
    paper = "Karimireddy et al. 2020, arXiv:1910.06378"

    def down_fields(self, shared: Region) -> tuple[Field, ...]:
        """The server's control."""
        return (Field("control/server", (shared.size,)),)

    def up_fields(self, shared: Region) -> tuple[Field, ...]:
        """The change of the site's control; every site counts the same."""
        return (Field("control/change", (shared.size,), rule="uniform"),)

    def check(self, rates: OptimizerSettings) -> None:
        """Refuse what the controls would be wrong for."""
        if rates.name != "sgd" or rates.momentum or rates.weight_decay or rates.parts:
            raise ConfigError(
                "SCAFFOLD's controls are right for plain SGD only",
                where="optimizer",
                hint="Use plain sgd without momentum or decay and one lr, or another method.",
            )

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """Add c - c_i to every gradient."""
        own = site.state.setdefault("control", torch.zeros(site.shared.size))
        site.state["server"] = down["control/server"].clone()
        return Terms(pull=(constant(site, site.state["server"] - own),))

    def end(self, site: Site, ctx: Context) -> dict[str, Tensor]:
        """The new control of the site, from the steps it really made."""
        change = -site.state.pop("server") - site.drift.cpu() / (
            max(1, site.result.steps) * ctx.optimizer.lr
        )
        site.state["control"] = site.state["control"] + change
        return {"control/change": change}

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """The model and the server's control."""
        control = server.state.setdefault("control", torch.zeros(server.shared.size))
        return {**super().open(server, ctx), "control/server": control}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """c += (|S| / K) mean(change)."""
        super().close(server, sums, ctx)
        share = len(sums.accepted) / ctx.sites
        server.state["control"] = server.state["control"] + share * sums.tensors["control/change"]
        return {"control_norm": float(torch.linalg.vector_norm(server.state["control"]))}
