"""SCAFFOLD: control variates correct the drift of each site."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.errors import ConfigError
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.method import METHODS, About, Method, RunSetup
from vitrail.methods.base.pulls import make_constant_pull
from vitrail.methods.base.server import Server
from vitrail.release.message import Field


@METHODS.register("scaffold")
class Scaffold(Method):
    """y <- y - eta (g - c_i + c); then c_i' = c_i - c + (x - y) / (steps eta), option II.

    All controls start at zero. The correction is exact for plain SGD only, so momentum,
    weight decay, Adam and several rates are refused.
    """

    summary = "control variates correct the drift of each site"
    paper = "Karimireddy et al. 2020, arXiv:1910.06378"

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """The server's control down, the change of the site's up; every site counts the same."""
        del stage
        size = (about.shared.size,)
        return (Field("control/server", size),), (Field("control/change", size, rule="uniform"),)

    def check_run(self, setup: RunSetup) -> None:
        """Refuse what the controls would be wrong for."""
        rates = setup.optimizer
        if rates.name != "sgd" or rates.momentum or rates.weight_decay or rates.parts:
            raise ConfigError(
                "SCAFFOLD's controls are right for plain SGD only",
                where="optimizer",
                hint="Use plain sgd without momentum or decay and one lr, or another method.",
            )

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """Add c - c_i to every gradient."""
        control = site.state.setdefault("control", torch.zeros(site.shared.size))
        site.state["server"] = down["control/server"].clone()
        return Terms(pull=(make_constant_pull(site, site.state["server"] - control),))

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
