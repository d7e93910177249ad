"""Heads that explain themselves: a logit is a sum of pieces, most of which have a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import ConfigError, VitrailError
from vitrail.models.heads.head import Head, Outputs
from vitrail.models.network import Network


@dataclass(frozen=True)
class Piece:
    """One term of a logit: `contribution = score x weight`.

    `unit` numbers the prototype (or subspace) it comes from and `owner` is that unit's class;
    both are None for what has no unit of its own. `map` is the unit's activation over positions
    [H, W] and `at` the position (row, column) that the score was read at; both are None for a
    piece without a place in the image.
    """

    name: str
    score: float
    weight: float
    contribution: float
    unit: int | None = None
    owner: int | None = None
    map: Tensor | None = None
    at: tuple[int, int] | None = None


class PartHead(Head):
    """A head over a map of patches. Its units are prototypes, or subspaces, each of one class."""

    owner: Tensor  # [units], the class of each unit
    weight: Tensor  # [classes, units], the last layer

    def measure(self, z: Tensor) -> Outputs:
        """All that the last layer has no part in, each [N, ...]; what it weighs among it."""
        raise NotImplementedError(f"{type(self).__name__} must define measure")

    def compute_logits(self, measured: Outputs) -> Outputs:
        """What was measured, with the logits that the last layer makes of it."""
        raise NotImplementedError(f"{type(self).__name__} must define judge")

    def forward(self, z: Tensor) -> Outputs:
        """Measure, then judge."""
        return self.compute_logits(self.measure(z))

    def compute_contributions(self, measured: Outputs) -> Tensor:
        """What each unit gives to each logit, [N, classes, units]; over units they add up to it.

        As it stands: `scores` [N, units] times `weight` [classes, units].
        """
        return measured["scores"][:, None] * self.weight

    def maps(self, z: Tensor) -> Tensor:
        """The activation of every unit at every position, [N, units, H, W]; larger is closer."""
        raise NotImplementedError(f"{type(self).__name__} must define maps")

    def pieces(self, z: Tensor, label: int) -> list[Piece]:
        """The terms of one class's logit for one image [1, D, H, W]; they add up to it."""
        raise NotImplementedError(f"{type(self).__name__} must define pieces")

    def alive(self) -> Tensor:
        """Which units take part, [units] of bool."""
        raise NotImplementedError(f"{type(self).__name__} must define alive")


Kind = TypeVar("Kind", bound=Head)


def require_head(network: Network, kind: type[Kind], lack: VitrailError) -> Kind:
    """The head of a network if it is of a kind, else the error that says what is lacking."""
    if not isinstance(network.head, kind):
        raise lack
    return network.head


def require_part_head(network: Network) -> PartHead:
    """The head of a network that explains itself by parts, or an error that says it has none."""
    lack = ConfigError(
        "this model has no parts to explain a prediction by",
        where="method.model",
        hint='A model that has: "protopnet". Or look at an attribution map such as grad-cam.',
    )
    return require_head(network, PartHead, lack)


def make_owners(classes: int, per_class: int) -> Tensor:
    """The class of every unit, `per_class` units a class, class by class."""
    return torch.arange(classes).repeat_interleave(per_class)


def make_starting_weight(owner: Tensor, classes: int) -> Tensor:
    """The last layer as it starts, [classes, units]: 1 to the own class, -0.5 to the others."""
    return 1.5 * F.one_hot(owner, classes).T.to(torch.float32) - 0.5


def make_pieces(
    maps: Tensor, weight: Tensor, owner: Tensor, alive: Tensor, noun: str
) -> list[Piece]:
    """One piece a unit in use: the largest value of its map [units, H, W] times its weight."""
    scores, places = maps.flatten(1).max(1)
    pieces = []
    for unit in torch.nonzero(alive)[:, 0].tolist():
        score, factor = float(scores[unit]), float(weight[unit])
        pieces.append(
            Piece(
                name=f"{noun} {unit}",
                score=score,
                weight=factor,
                contribution=score * factor,
                unit=unit,
                owner=int(owner[unit]),
                map=maps[unit],
                at=divmod(int(places[unit]), maps.shape[2]),
            )
        )
    return pieces
