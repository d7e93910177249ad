"""Is a recovered image nearer to the site's images than luck would have it?

Recovered images are matched to whichever true ones they are nearest to, so that pure noise is
"identified" too: as often as the site's images are among the candidates. The chance level says how
often, and a permutation test how surprising the real number is: of all candidates of one class,
those of others included, any could have been the site's. The null distribution is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.attack.image_scores import compute_pairwise_mse

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """Candidates of one class: how many, how many are the site's, and how many recovered images
    each candidate that is nearest to some is nearest to."""

    candidates: int
    own: int
    nearest: tuple[int, ...]


@dataclass(frozen=True)
class Identification:
    """How many of `images` recovered ones are nearest to an image of their site, the share that
    chance gives, and the chance of at least as many."""

    images: int
    found: int
    chance: float
    p_value: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"nearest_is_own": self.found, "chance": self.chance, "p_value": self.p_value}


def list_draws(
    recovered: Tensor, own: Tensor, own_labels: Tensor, others: Tensor, other_labels: Tensor
) -> tuple[list[Draw], int]:
    """The draws behind one site's recovered images, and how many of these found the site."""
    errors = compute_pairwise_mse(recovered, torch.cat([own, others]))
    nearest = errors.argmin(1).tolist()
    labels = torch.cat([own_labels, other_labels]).tolist()
    in_all, at_site = Counter(labels), Counter(own_labels.tolist())
    counts = Counter(nearest)
    draws = [
        Draw(
            in_all[label],
            at_site[label],
            tuple(count for at, count in counts.items() if labels[at] == label),
        )
        for label in sorted({labels[at] for at in counts})
    ]
    return draws, sum(at < len(own) for at in nearest)


def judge_identification(draws: Sequence[Draw], found: int) -> Identification | None:
    """The chance level and the p-value; None without images, or where nobody else has any."""
    images = sum(count for draw in draws for count in draw.nearest)
    if not images or all(draw.own == draw.candidates for draw in draws):
        return None
    null: Floats = np.ones(1)
    for draw in draws:
        null = np.convolve(null, compute_null(draw))
    expected = float(np.dot(np.arange(len(null)), null))
    return Identification(images, found, expected / images, min(1.0, float(null[found:].sum())))


def compute_null(draw: Draw) -> Floats:
    """The chance of each number of recovered images to be nearest to the site's, if the site's
    images were drawn from all candidates."""
    total = sum(draw.nearest)
    table = np.zeros((len(draw.nearest) + 1, total + 1))  # candidates that are the site's, images
    table[0, 0] = 1.0
    for at, count in enumerate(draw.nearest):
        chosen = np.arange(len(table))
        share = np.clip((draw.own - chosen) / (draw.candidates - at), 0.0, 1.0)[:, None]
        after = table * (1 - share)
        moved = table * share
        after[1:, count:] += moved[:-1, : total + 1 - count]
        table = after
    null: Floats = table.sum(0)
    return null


def judge_pairs(identified: int, images: int, candidates: int) -> Identification | None:
    """Where it is known which image each was made of: one of all candidates is right."""
    from scipy.stats import binom

    if not images or candidates < 2:
        return None
    p_value = float(binom.sf(identified - 1, images, 1 / candidates))
    return Identification(images, identified, 1 / candidates, p_value)
