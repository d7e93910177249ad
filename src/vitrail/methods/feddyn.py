"""FedDyn: a dynamic regularizer that makes the sites' optima meet."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config.schema import Positive
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.pulls import make_constant_pull, make_proximal_pull
from vitrail.methods.base.server import Server


class DynOptions(Options):
    """`alpha` is the strength of the regularizer, `clip` the largest gradient norm."""

    alpha: Positive = 0.01
    clip: Positive = 10.0


@METHODS.register("feddyn")
class FedDyn(Method):
    """Local loss + (a/2)|w - w_g|^2 - <h_k, w>, then h_k <- h_k - a (w_k - w_g).

    The server keeps h <- h - (a/K) sum_k (w_k - w_g) over the round's sites, K being ALL
    sites, and sends mean(w_k) - h/a; the mean itself is what is evaluated and saved.
    """

    summary = "a dynamic regularizer that makes the sites' optima meet"
    paper = "Acar et al. 2021, arXiv:2111.04263"
    Options = DynOptions
    weighting = "uniform"
    exact = True
    sends_global = False

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """The two pulls of the regularizer, and clipping."""
        h = site.state.setdefault("h", torch.zeros(site.shared.size))
        pulls = (make_proximal_pull(site, self.options.alpha), make_constant_pull(site, -h))
        return Terms(pull=pulls, clip=self.options.clip)

    def end(self, site: Site, ctx: Context) -> dict[str, Tensor]:
        """h_k <- h_k - a (w_k - w_g)."""
        site.state["h"] = site.state["h"] - self.options.alpha * site.drift.cpu()
        return {}

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """Send mean(w_k) - h/a."""
        h = server.state.setdefault("h", torch.zeros(server.shared.size))
        values = server.values.clone()
        server.shared.add_(values, h, -1.0 / self.options.alpha)
        return server.make_model_message(values)

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean, and h <- h - (a/K) sum_k (w_k - w_g)."""
        super().close(server, sums, ctx)
        moved = server.shared.of(server.values) - server.shared.of(server.sent)
        scale = self.options.alpha * len(sums.accepted) / ctx.sites
        server.state["h"] = server.state["h"] - scale * moved
        return {"h_norm": float(torch.linalg.vector_norm(server.state["h"]))}
