"""FedAvgM: the server keeps a momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.config.schema import Positive
from vitrail.local.session import State
from vitrail.methods.base.method import METHODS, Options
from vitrail.methods.base.server_optimizer import Decay, ServerStep


class MomentumOptions(Options):
    """`server_lr` scales the server's step, `server_momentum` is what is kept of the last one."""

    server_lr: Positive = 1.0
    server_momentum: Decay = 0.9


@METHODS.register("fedavgm")
class FedAvgM(ServerStep):
    """v <- b v + d, then w <- w + eta v, d being the sites' mean change."""

    summary = "FedAvg with momentum at the server"
    paper = "Hsu et al. 2019, arXiv:1909.06335"
    Options = MomentumOptions

    def step(self, change: Tensor, state: State) -> Tensor:
        """One step with momentum."""
        v = state.setdefault("v", torch.zeros_like(change))
        state["v"] = v * self.options.server_momentum + change
        return state["v"] * float(self.options.server_lr)
