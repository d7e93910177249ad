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


def squared(found: Named, target: Named, weights: Named | None = None) -> Tensor:
    """sum |g - g*|^2 for each row (DLG's loss)."""
    terms = []
    for name, wanted in target.items():
        gap = (found[name] - wanted).square()
        terms.append(_weighed(gap, name, weights).flatten(1).sum(1))
    return torch.stack(terms).sum(0)


def cosine(found: Named, target: Named, weights: Named | None = None) -> Tensor:
    """1 - <g, g*> / (|g| |g*|) for each row, over all tensors together (IG's loss)."""
    dot, own, theirs = [], [], []
    for name, wanted in target.items():
        g = found[name]
        scaled = _weighed(g, name, weights)
        dot.append((scaled * wanted).flatten(1).sum(1))
        own.append((scaled * g).flatten(1).sum(1))
        theirs.append((_weighed(wanted, name, weights) * wanted).flatten(1).sum(1))
    norms = torch.stack(own).sum(0) * torch.stack(theirs).sum(0)
    return 1 - torch.stack(dot).sum(0) / (norms + _TINY).sqrt()


def _weighed(value: Tensor, name: str, weights: Named | None) -> Tensor:
    """A tensor [k, C, ...] times the weight [k, C] of its output channels, if there are any."""
    if weights is None or name not in weights:
        return value
    own = weights[name]
    return value * own.view(*own.shape, *(1,) * (value.dim() - own.dim()))


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
        self.turns = [turn.take(at) for turn in scene.turns]
        given: Sequence[Named | None] = weights or [None] * len(scene.turns)
        self.weights = [None if w is None else {n: t[at] for n, t in w.items()} for w in given]

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One loss a row, for images [R, n, C, H, W] and labels [R, n]."""
        found = []
        for turn, weights in zip(self.turns, self.weights, strict=True):
            made = self.victim.changes(turn.sent, turn.recipe, x, y)
            found.append(self.measure(made, turn.directions, weights))
        return torch.stack(found).mean(0)


def total_variation(x: Tensor) -> Tensor:
    """The mean absolute difference of neighboring pixels, for each row of [R, n, C, H, W]."""
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    right = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
    return down + right
