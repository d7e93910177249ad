"""How far an imagined update is from the one that was seen: the losses of gradient inversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from vitrail.attack.inversion.victim import Victim
from vitrail.attack.scene import Scene

Distance = Literal["squared", "cosine"]
Named = Mapping[str, Tensor]
_TINY = 1e-20


def squared_distance(imagined: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """sum |g - g*|^2 for each row of [R, P] (DLG's loss)."""
    gap = (imagined - target).square()
    return (gap if weights is None else gap * weights).sum(1)


def cosine(imagined: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """1 - <g, g*> / (|g| |g*|) for each row of [R, P], over all tensors together (IG's loss)."""
    scaled, wanted = (
        (imagined, target) if weights is None else (imagined * weights, target * weights)
    )
    dot = (imagined * wanted).sum(1)
    norms = (scaled * imagined).sum(1) * (wanted * target).sum(1)
    return 1 - dot / (norms + _TINY).sqrt()


def concatenate_tensors(named: Named, names: Sequence[str]) -> Tensor:
    """Tensors [R, ...] side by side as one [R, P]."""
    return torch.cat([named[name].flatten(1) for name in names], 1)


def expand_channel_weights(weights: Named, like: Named) -> Tensor:
    """Weights [R, C] of output channels as weights [R, P] of every number; 1 where none are."""
    expanded = []
    for name, tensor in like.items():
        channels = weights.get(name)
        if channels is None:
            expanded.append(torch.ones_like(tensor).flatten(1))
        else:
            wide = channels.view(*channels.shape, *(1,) * (tensor.dim() - channels.dim()))
            expanded.append(wide.expand_as(tensor).flatten(1))
    return torch.cat(expanded, 1)


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
        self.measure = {"squared": squared_distance, "cosine": cosine}[distance]
        at = list(rows)
        self.turns = list(scene.turns)
        self.targets: list[tuple[list[str], Tensor, Tensor | None]] = []
        given: Sequence[Named | None] = weights or [None] * len(scene.turns)
        for turn, channels in zip(scene.turns, given, strict=True):
            names = list(turn.directions)
            trust = (
                None if channels is None else expand_channel_weights(channels, turn.directions)[at]
            )
            self.targets.append((names, concatenate_tensors(turn.directions, names)[at], trust))

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One loss a row, for images [R, n, C, H, W] and labels [R, n]."""
        losses = []
        for turn, (names, target, trust) in zip(self.turns, self.targets, strict=True):
            changes = self.victim.changes(turn.sent, turn.recipe, x, y)
            losses.append(self.measure(concatenate_tensors(changes, names), target, trust))
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)


def total_variation(x: Tensor) -> Tensor:
    """The mean absolute difference of neighboring pixels, for each row of [R, n, C, H, W]."""
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    right = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
    return down + right
