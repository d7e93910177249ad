"""Canaries of a privacy audit: made-up examples whose gradient is the clip in one number alone.

Each is there by a coin of its own and then takes part in a step as an image would. Whoever sees the
released model guesses the coins (`vitrail attack --attacks canary`). Where whole sites are
protected, canaries are sites that send a random direction instead of what they trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.rng import Key, Stream, derive_server_key


@dataclass
class Canaries:
    """`there` are the coins [M], known to the site alone; `rate` is the chance to be in a step."""

    count: int
    there: Tensor
    places: Key
    rate: float
    clip: float
    coins: Stream

    def add_to(self, total: Tensor) -> None:
        """Add those of this step to the flat sum of clipped gradients."""
        drawn = self.there & (self.coins.uniform([self.count]) < self.rate)
        places = draw_places(self.count, total.numel(), self.places)
        total.index_add_(0, places[drawn], torch.full_like(total[places[drawn]], self.clip))


def toss_coins(secret: Key, count: int) -> Tensor:
    """Which canaries are there, from the site's secret: the same in all rounds."""
    words = Key(secret.root).at("canaries of a privacy audit").stream().words(count)
    return torch.from_numpy((words & np.uint64(1)) == 1)


def find_places_key(seed: int, site: str) -> Key:
    """Where the numbers of a site's canaries are drawn from; no secret."""
    return derive_server_key(seed).at("places of canaries", site)


def draw_places(count: int, total: int, key: Key) -> Tensor:
    """The number of the model that each canary moves, no two the same where there are enough."""
    return torch.from_numpy(key.numpy().choice(total, count, replace=count > total))


def is_canary_site(seed: int, site: str, share: float) -> bool:
    """Whether a site is a canary: a public coin of this chance, known in simulation only."""
    coin = derive_server_key(seed).at("canary sites", site).numpy().random()
    return bool(coin < share)


def draw_direction(
    seed: int, site: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """A canary site's direction over some tensors: uniform over all of length 1, in float64; the
    same in all rounds."""
    key = derive_server_key(seed).at("canary sites", site, "direction")
    drawn = {
        name: torch.from_numpy(np.asarray(key.at(name).numpy().standard_normal(shape)))
        for name, shape in shapes.items()
    }
    length = math.sqrt(sum(float(part.square().sum()) for part in drawn.values()))
    return {name: part / length for name, part in drawn.items()} if length else drawn
