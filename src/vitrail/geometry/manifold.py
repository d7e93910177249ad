"""What a manifold is: a few functions, handed around as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import ConfigError, suggest_name
from vitrail.geometry.frames import Source

Pair = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Manifold:
    """Points are tensors; leading dimensions are a batch, and the last two make one point.

    `project(x, v)` is the tangent part of v at x, `retractions` lead from x along a tangent
    vector back to the manifold (the first is the default), `problem(x)` says why x is no point
    or None, `random(shape, source, dtype)` draws points, `dimension(n, p)` counts freedoms.
    """

    name: str
    project: Pair
    retractions: Mapping[str, Pair]
    distance: Pair
    problem: Callable[[Tensor], str | None]
    random: Callable[[tuple[int, ...], Source, torch.dtype], Tensor]
    dimension: Callable[[int, int], int]

    def retraction(self, how: str | None = None) -> Pair:
        """A retraction by name; None is the default one."""
        if how is None:
            return next(iter(self.retractions.values()))
        if how not in self.retractions:
            raise ConfigError(
                f"{self.name} has no retraction {how!r}", hint=suggest_name(how, self.retractions)
            )
        return self.retractions[how]
