"""The mean of prototypes after their slots were paired up, site by site."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Group, Metrics, PerSiteRule, Tensors
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.geometry.slots import match_slots

VECTORS, WEIGHT, MASK = "model/head.vectors", "model/head.weight", "model/head.mask"


@RULES.register("matched")
class MatchedMean(PerSiteRule):
    """Within each class, a site's prototypes are assigned to those that were sent.

    Slots of different sites need not mean the same; the assignment of least total squared
    distance (Kuhn 1955) says which belong together. Columns of the last layer move along;
    tensors without slots are averaged as they are.
    """

    merges = False

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        if not {VECTORS, WEIGHT} <= {field.name for field in group.fields}:
            raise ConfigError(
                "'matched' pairs prototypes up, and here they do not travel with their last layer",
                where="aggregate.rule",
                hint="Use it with a prototype method that shares both.",
            )

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """Permute every site's slots, then the weighted mean."""
        reference = self.group.unpack(sent)
        total = torch.zeros_like(sent)
        moved = 0
        for row, weight in zip(stack, weights, strict=True):
            tensors = self.group.unpack(row)
            order = match_slots(tensors[VECTORS], reference[VECTORS], len(tensors[WEIGHT]))
            moved += int((order != torch.arange(len(order))).sum())
            total += weight * self.group.pack(permute_slots(tensors, order))
        return self.group.unpack(total / weights.sum()), {"slots_moved": float(moved)}


def permute_slots(tensors: Tensors, order: Tensor) -> Tensors:
    """Rows of prototypes, columns of weights and entries of the mask in another order."""
    permuted = dict(tensors)
    permuted[WEIGHT] = tensors[WEIGHT][:, order]
    for name in (VECTORS, MASK):
        if name in tensors:
            permuted[name] = tensors[name][order]
    return permuted
