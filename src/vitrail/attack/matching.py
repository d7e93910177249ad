"""How far an imagined update is from the one that was seen: the losses of gradient inversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from vitrail.attack.scene import Scene
from vitrail.attack.victim import Victim

Distance = Literal["squared", "cosine"]
Named = Mapping[str, Tensor]
_TINY = 1e-20


def squared(found: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """sum |g - g*|^2 for each row of [R, P] (DLG's loss)."""
    gap = (found - target).square()
    return (gap if weights is None else gap * weights).sum(1)


def cosine(found: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """1 - <g, g*> / (|g| |g*|) for each row of [R, P], over all tensors together (IG's loss)."""
    scaled, wanted = (found, target) if weights is None else (found * weights, target * weights)
    dot = (found * wanted).sum(1)
    norms = (scaled * found).sum(1) * (wanted * target).sum(1)
    return 1 - dot / (norms + _TINY).sqrt()


def flat(named: Named, names: Sequence[str]) -> Tensor:
    """Tensors [R, ...] side by side as one [R, P]."""
    return torch.cat([named[name].flatten(1) for name in names], 1)


def spread(weights: Named, like: Named) -> Tensor:
    """Weights [R, C] of output channels as weights [R, P] of every number; 1 where none are."""
    found = []
    for name, tensor in like.items():
        own = weights.get(name)
        if own is None:
            found.append(torch.ones_like(tensor).flatten(1))
        else:
            wide = own.view(*own.shape, *(1,) * (tensor.dim() - own.dim()))
            found.append(wide.expand_as(tensor).flatten(1))
    return torch.cat(found, 1)


class Mismatch:
    """The loss of rows of guessed images against a scene, over all of its turns.

    `rows` says which site each row is a guess at; `weights` holds one table of channel weights
    a turn, for an attacker who trusts some channels more than others.
    """

    def __init__(
        self,
        scene: Scene,
        rows: Sequence[int],
        distance: Distance,
        weights: Sequence[Named | None] | None = None,
    ) -> None:
        self.scene, self.victim = scene, Victim(scene.network)
        self.measure = {"squared": squared, "cosine": cosine}[distance]
        at = list(rows)
        self.turns = list(scene.turns)
        self.targets: list[tuple[list[str], Tensor, Tensor | None]] = []
        given: Sequence[Named | None] = weights or [None] * len(scene.turns)
        for turn, own in zip(scene.turns, given, strict=True):
            names = list(turn.directions)
            trust = None if own is None else spread(own, turn.directions)[at]
            self.targets.append((names, flat(turn.directions, names)[at], trust))

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One loss a row, for images [R, n, C, H, W] and labels [R, n]."""
        found = []
        for turn, (names, target, trust) in zip(self.turns, self.targets, strict=True):
            made = self.victim.changes(turn.sent, turn.recipe, x, y)
            found.append(self.measure(flat(made, names), target, trust))
        return found[0] if len(found) == 1 else torch.stack(found).mean(0)


def total_variation(x: Tensor) -> Tensor:
    """The mean absolute difference of neighboring pixels, for each row of [R, n, C, H, W]."""
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    right = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
    return down + right
