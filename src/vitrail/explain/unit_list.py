"""What a model looks for: its units by class, what is known of each, and which are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.models.heads.part_head import PartHead

TOLERANCE = 1e-3  # of the mean squared norm, as in `models.protopnet.duplicates`


@dataclass(frozen=True)
class Unit:
    """One prototype of a model: its class, its weight there, the ones that nearly equal it."""

    number: int
    owner: int
    class_name: str
    alive: bool
    weight: float | None  # to its own class; None if the head has no such number
    also: tuple[str, float] | None  # the other class it speaks for most, if it does
    twins: tuple[int, ...]


@torch.no_grad()
def list_units(head: PartHead, classes: Sequence[str]) -> list[Unit]:
    """Every unit of a head in order, masked ones too."""
    owner, alive = head.owner, head.alive()
    twins = _find_twins(head)
    weight = getattr(head, "weight", None)
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (len(classes), len(owner)):
        weight = None
    units = []
    for number in range(len(owner)):
        label = int(owner[number])
        own_weight, also = None, None
        if weight is not None:
            column = weight[:, number].tolist()
            own_weight = float(column[label])
            others = [i for i in range(len(classes)) if i != label and column[i] > 0]
            if others:
                best = max(others, key=lambda i: column[i])
                also = (classes[best], float(column[best]))
        units.append(
            Unit(
                number,
                label,
                classes[label],
                bool(alive[number]),
                own_weight,
                also,
                twins.get(number, ()),
            )
        )
    return units


def _find_twins(head: PartHead) -> dict[int, tuple[int, ...]]:
    """For each unit in use the others of its class within the tolerance, if units are vectors."""
    vectors = getattr(head, "vectors", None)
    owner, alive = head.owner, head.alive()
    if not isinstance(vectors, Tensor) or vectors.dim() != 2 or len(vectors) != len(owner):
        return {}
    if not bool(alive.any()):
        return {}
    limit = TOLERANCE * vectors[alive].square().sum(1).mean()
    close = torch.cdist(vectors, vectors).square() <= limit
    close &= (owner[:, None] == owner) & alive & alive[:, None]
    close.fill_diagonal_(False)
    return {i: tuple(torch.nonzero(row)[:, 0].tolist()) for i, row in enumerate(close) if row.any()}
