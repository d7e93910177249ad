"""Heads that explain themselves: a logit is a sum of pieces, most of which have a place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vitrail.models.head import Head


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

    def maps(self, z: Tensor) -> Tensor:
        """The activation of every unit at every position, [N, units, H, W]; larger is closer."""
        raise NotImplementedError(f"{type(self).__name__} must define maps")

    def pieces(self, z: Tensor, label: int) -> list[Piece]:
        """The terms of one class's logit for one image [1, D, H, W]; they add up to it."""
        raise NotImplementedError(f"{type(self).__name__} must define pieces")

    def alive(self) -> Tensor:
        """Which units take part, [units] of bool."""
        raise NotImplementedError(f"{type(self).__name__} must define alive")
