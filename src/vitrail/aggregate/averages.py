"""Means: weighted, uniform, of clipped changes, and FedNova's normalized one."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Metrics, Rule, Tensors
from vitrail.grid_noise import add_noise
from vitrail.release.update import Update
from vitrail.rng import Stream


@RULES.register("mean")
class Mean(Rule):
    """The weighted mean."""

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The update times its weight."""
        del sent
        return self.group.pack(update.tensors).mul_(weight)

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The sum divided by the sum of weights."""
        del sent
        return self.group.unpack(total / weight), {}

    def disturb(self, total: Tensor, deviation: float, source: Stream) -> Tensor:
        """White noise on every number."""
        return add_noise(total, deviation, source)


@RULES.register("uniform")
class UniformMean(Rule):
    """The mean in which every site counts the same, whatever its weight."""

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The update, and a 1 that counts it."""
        del weight, sent
        return torch.cat([self.group.pack(update.tensors), torch.ones(1, dtype=torch.float64)])

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The sum divided by the count."""
        del weight, sent
        return self.group.unpack(total[:-1] / total[-1]), {}

    def disturb(self, total: Tensor, deviation: float, source: Stream) -> Tensor:
        """White noise on every number but the count, which is no secret."""
        return torch.cat([add_noise(total[:-1], deviation, source), total[-1:]])


@RULES.register("norm-clip")
class NormClip(Mean):
    """The weighted mean of changes whose norm is cut to `aggregate.clip`."""

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The clipped change times its weight, and 1 if it was clipped."""
        change = self.group.pack(update.tensors).sub_(sent)
        norm = float(torch.linalg.vector_norm(change))
        clipped = norm > self.options.clip
        change.mul_(weight * (self.options.clip / norm if clipped else 1.0))
        return torch.cat([change, torch.tensor([float(clipped)], dtype=torch.float64)])

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """What was sent plus the mean change; reports how many were clipped."""
        return self.group.unpack(sent + total[:-1] / weight), {"clipped": float(total[-1])}


@RULES.register("nova")
class Nova(Rule):
    """FedNova (Wang et al. 2020, arXiv:2007.07481, eq. 8): normalized changes, then one step.

    w <- w_g - tau_eff * sum p_k (w_g - w_k) / tau_k with tau_eff = sum p_k tau_k; tau_k is the
    count `tau` of the update. Statistics of normalization layers are no sums of gradient
    steps, so they are averaged plainly.
    """

    counts = ("tau",)

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The change per normalized step times the weight; last number: weight times tau."""
        tau = float(update.counts["tau"])
        change = self.group.pack(update.tensors).sub_(sent).mul_(weight / tau)
        return torch.cat([change, torch.tensor([weight * tau], dtype=torch.float64)])

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """One step of the effective length."""
        effective = float(total[-1]) / weight
        return self.group.unpack(sent + total[:-1] * (effective / weight)), {"tau_eff": effective}
