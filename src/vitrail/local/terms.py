"""What a method adds to plain local training: losses, pulls, and how a batch becomes a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.models.flat import FlatModel, keep_statistics
from vitrail.models.heads.head import Outputs
from vitrail.models.network import Network

Batch = tuple[Tensor, Tensor]
LossTerm = Callable[[Outputs, Batch], Tensor]
Pull = Callable[[FlatModel], None]
Forward = Callable[[Tensor], Outputs]
Sampler = Callable[[int, int], list[Tensor]]  # count, batch size -> positions, epoch by epoch


@dataclass(frozen=True)
class Objective:
    """What a batch is to minimize: the head's loss and a method's terms, after `forward`."""

    network: Network
    forward: Forward
    terms: tuple[LossTerm, ...] = ()

    def __call__(self, batch: Batch) -> Tensor:
        """Everything."""
        outputs = self.forward(batch[0])
        losses = self.network.head.loss(outputs, batch[1])
        return self._with_terms(torch.stack(list(losses.values())).sum(), outputs, batch)

    def data_loss(self, batch: Batch) -> Tensor:
        """Only what sees data: without the head's penalties."""
        outputs = self.forward(batch[0])
        losses = self.network.head.loss(outputs, batch[1])
        kept = [loss for name, loss in losses.items() if name not in self.network.head.penalties]
        return self._with_terms(torch.stack(kept).sum(), outputs, batch)

    def penalty_loss(self, batch: Batch) -> Tensor | None:
        """Only the head's penalties, which are the same for every batch; None without any."""
        if not self.network.head.penalties:
            return None
        with torch.no_grad():
            outputs = self.forward(batch[0])
        losses = self.network.head.loss(outputs, batch[1])
        return torch.stack([losses[name] for name in self.network.head.penalties]).sum()

    def _with_terms(self, loss: Tensor, outputs: Outputs, batch: Batch) -> Tensor:
        for term in self.terms:
            loss = loss + term(outputs, batch)
        return loss


Gradient = Callable[[FlatModel, Batch, Objective], Tensor]


def compute_plain_gradient(model: FlatModel, batch: Batch, objective: Objective) -> Tensor:
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
        loss = compute_plain_gradient(model, batch, objective)
        weights = model.values[: model.layout.trainable]
        before = weights.clone()
        norm = torch.linalg.vector_norm(model.grads)
        weights.add_(model.grads * (self.rho / (norm + 1e-12)))
        model.grads.zero_()
        with keep_statistics(model.network):
            compute_plain_gradient(model, batch, objective)
        weights.copy_(before)
        return loss


@dataclass(frozen=True)
class Terms:
    """The slots of local training. `gradient`, `clip` and `sampler` can be claimed once only.

    `loss` terms see data; `pull` terms see none and are added in place to the flat gradient
    after it, so that per-example clipping touches only what saw data.
    """

    loss: tuple[LossTerm, ...] = ()
    pull: tuple[Pull, ...] = ()
    gradient: Gradient = compute_plain_gradient
    clip: float | None = None
    sampler: Sampler | None = None  # None: shuffled epochs

    def combine(self, other: Terms) -> Terms:
        """Both sets of terms together; two claims on one slot are an error."""
        empty = Terms()
        slots = {}
        for slot, does in (
            ("gradient", "decide how a batch becomes a gradient"),
            ("clip", "clip gradients"),
            ("sampler", "draw the batches"),
        ):
            ours, theirs = getattr(self, slot), getattr(other, slot)
            if ours is not getattr(empty, slot) and theirs is not getattr(empty, slot):
                raise ConfigError(
                    f"two parts of this run both want to {does}",
                    where="method, release.defenses",
                    hint="Take one of them out.",
                )
            slots[slot] = theirs if ours is getattr(empty, slot) else ours
        return Terms(loss=self.loss + other.loss, pull=self.pull + other.pull, **slots)
