"""Poisson batches: every image takes part in a step by a coin of its own.

Amplification by sampling is proved for these batches, not for shuffled ones, and only as long as
nobody but the site knows the coins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.rng import Stream


def compute_sampling_rate(count: int, batch_size: int) -> float:
    """The chance of an image to be in a step, so that a batch has `batch_size` on average."""
    return min(1.0, batch_size / count) if count else 0.0


def count_steps(count: int, batch_size: int) -> int:
    """How many steps an epoch has."""
    return -(-count // batch_size)


@dataclass(frozen=True)
class PoissonSampler:
    """Draws the positions of one epoch's batches after the other, by coins of its own.

    A batch may be empty, and still makes a step.
    """

    coins: Stream

    def __call__(self, count: int, batch_size: int) -> list[Tensor]:
        """The batches of an epoch."""
        chance = compute_sampling_rate(count, batch_size)
        return [
            torch.nonzero(self.coins.uniform([count]) < chance)[:, 0]
            for _ in range(count_steps(count, batch_size))
        ]
