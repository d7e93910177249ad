"""What an aggregation rule is: lift each update into a vector, add, finish the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.registry import Registry
from vitrail.release.message import Field
from vitrail.release.update import Update
from vitrail.rng import Stream

Tensors = dict[str, Tensor]
Metrics = dict[str, float]


@dataclass(frozen=True)
class Group:
    """The fields of a message that one rule adds up, seen as one flat vector."""

    fields: tuple[Field, ...]

    def pack(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The group's tensors as one float64 vector, in declared order."""
        if not self.fields:
            return torch.empty(0, dtype=torch.float64)
        return torch.cat([tensors[f.name].reshape(-1) for f in self.fields]).to(torch.float64)

    def unpack(self, flat: Tensor) -> Tensors:
        """A vector back as named tensors of the declared types."""
        tensors, at = {}, 0
        for field in self.fields:
            size = int(torch.Size(field.shape).numel())
            tensors[field.name] = flat[at : at + size].view(field.shape).to(field.dtype)
            at += size
        return tensors


class Rule:
    """A sum over sites. `sent` is the group's packed vector of what the sites received."""

    needs: Literal["sum", "all"] = "sum"
    counts: tuple[str, ...] = ()  # what each update must count for it
    weighs: bool = True  # whether it matters to it how much a site counts
    trusts: bool = False  # whether it compares with what the server trained on trusted images

    def __init__(self, group: Group, options: Aggregate) -> None:
        self.group = group
        self.options = options
        self.trusted: Tensor | None = None  # the group's packed vector of the server's own model

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """What this update adds to the sum, in float64."""
        raise NotImplementedError(f"{type(self).__name__} must lift")

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The aggregated tensors from the sum and the sum of weights."""
        raise NotImplementedError(f"{type(self).__name__} must finish")

    def find_shortage(self, count: int) -> str | None:
        """Why so few updates are not enough for what this rule promises, or None."""
        del count
        return None

    def disturb(self, total: Tensor, deviation: float, source: Stream) -> Tensor:
        """The sum with Gaussian noise in it, for rules that a private sum is defined for."""
        del total, deviation, source
        raise ConfigError(
            f"there is no private sum for {type(self).__name__}",
            where="release.defenses",
            hint='Put the noise at the site: where = "site".',
        )


class PerSiteRule(Rule):
    """A rule that must see every update; it cannot work on secure sums."""

    needs = "all"
    merges: bool = True  # whether a mean of updates is an update to it, as bucketing needs

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The aggregated tensors from all updates, [sites, numbers] in float64."""
        raise NotImplementedError(f"{type(self).__name__} must choose")

    def merge(self, stack: Tensor, weights: Tensor) -> Tensor:
        """Some updates as one, for bucketing: their mean, weighted if the rule weighs."""
        shares = weights if self.weighs and float(weights.sum()) > 0 else torch.ones_like(weights)
        return (shares[:, None] * stack).sum(0) / shares.sum()


RULES: Registry[type[Rule]] = Registry("aggregation rule", "aggregate.rule")
