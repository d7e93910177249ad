"""Server optimizers: the sites' mean change is a gradient that the server takes a step with."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config.schema import Positive
from vitrail.local.session import Context, Metrics, State
from vitrail.methods.base.method import Method, Options
from vitrail.methods.base.server import Server

Decay = Annotated[float, Field(ge=0, lt=1)]


class ServerStep(Method):
    """FedAvg whose mean change d becomes a step of the server: w <- w + step(d).

    A subclass says what the step is. Only trainable numbers are stepped; BatchNorm statistics
    take the sites' mean, as in FedAvg.
    """

    def step(self, change: Tensor, state: State) -> Tensor:
        """What is added to the model; `state` is the optimizer's own and lasts the run."""
        raise NotImplementedError

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """Write the mean, then put the server's step in the place of the sites' change."""
        super().close(server, sums, ctx)
        change = server.shared.of(server.values) - server.shared.of(server.sent)
        step = self.step(change, server.state)
        server.shared.add_(server.values, step - change)
        return {"server_step": float(torch.linalg.vector_norm(step))}


class AdaptiveOptions(Options):
    """`server_lr` is eta of the paper, `beta1` the decay of the first moment, `tau` the
    adaptivity: the larger, the more like FedAvgM."""

    server_lr: Positive = 0.1
    beta1: Decay = 0.0
    tau: Positive = 1e-3


class DecayingOptions(AdaptiveOptions):
    """`beta2` is the decay of the second moment."""

    server_lr: Positive = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99


class AdaptiveStep(ServerStep):
    """m <- b1 m + (1 - b1) d; v by the subclass, from tau^2; the step is eta m / (sqrt(v) + tau).

    Algorithm 2 of the paper.
    """

    paper: ClassVar[str] = "Reddi et al. 2021, arXiv:2003.00295"
    Options: ClassVar[type[Options]] = AdaptiveOptions

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The new v from the old one and d^2."""
        raise NotImplementedError

    def step(self, change: Tensor, state: State) -> Tensor:
        """One adaptive step."""
        options = self.options
        m = state.setdefault("m", torch.zeros_like(change))
        v = state.setdefault("v", torch.full_like(change, options.tau**2))
        state["m"] = options.beta1 * m + (1 - options.beta1) * change
        state["v"] = self.second_moment(v, change.square())
        return state["m"] * float(options.server_lr) / (state["v"].sqrt() + float(options.tau))
