"""What a method adds to plain local training: losses, pulls, and how a batch becomes a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.models.flat import FlatModel, statistics_kept
from vitrail.models.head import Outputs

Batch = tuple[Tensor, Tensor]
LossTerm = Callable[[Outputs, Batch], Tensor]
Pull = Callable[[FlatModel], None]
Objective = Callable[[Batch], Tensor]
Gradient = Callable[[FlatModel, Batch, Objective], Tensor]


def plain(model: FlatModel, batch: Batch, objective: Objective) -> Tensor:
    """The gradient of the batch's mean loss; returns the loss."""
    del model
    loss = objective(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


@dataclass(frozen=True)
class Sam:
    """The gradient at w + rho g / |g| (Foret et al. 2021, arXiv:2010.01412)."""

    rho: float

    def __call__(self, model: FlatModel, batch: Batch, objective: Objective) -> Tensor:
        """Climb to the worst nearby point, take the gradient there, climb back."""
        loss = plain(model, batch, objective)
        weights = model.values[: model.layout.trainable]
        before = weights.clone()
        norm = torch.linalg.vector_norm(model.grads)
        weights.add_(model.grads * (self.rho / (norm + 1e-12)))
        model.grads.zero_()
        with statistics_kept(model.network):
            plain(model, batch, objective)
        weights.copy_(before)
        return loss


@dataclass(frozen=True)
class Terms:
    """The three slots of local training. `gradient` and `clip` can be claimed once only.

    `loss` terms see data; `pull` terms see none and are added in place to the flat gradient
    after it, so that per-example clipping touches only what saw data.
    """

    loss: tuple[LossTerm, ...] = ()
    pull: tuple[Pull, ...] = ()
    gradient: Gradient = plain
    clip: float | None = None

    def joined(self, other: Terms) -> Terms:
        """Both sets of terms together; two claims on one slot are an error."""
        if self.gradient is not plain and other.gradient is not plain:
            raise ConfigError(
                "two parts of this run both want to decide how a batch becomes a gradient",
                where="method, release.defenses",
                hint="Take one of them out.",
            )
        if self.clip is not None and other.clip is not None:
            raise ConfigError(
                "two parts of this run both want to clip gradients", where="method, release"
            )
        gradient = other.gradient if self.gradient is plain else self.gradient
        clip = other.clip if self.clip is None else self.clip
        return replace(
            self,
            loss=self.loss + other.loss,
            pull=self.pull + other.pull,
            gradient=gradient,
            clip=clip,
        )
