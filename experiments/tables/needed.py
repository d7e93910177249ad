"""Does a model need what its explanation marks, and does the mark depend on what it learned?

Deletion and insertion of the regions that the top part of a prediction marks, against the same
regions in a random order (Petsiuk et al. 2018, arXiv:1806.07421), and the rank correlation with
the map of a copy whose weights were drawn anew (Adebayo et al. 2018, arXiv:1810.03292).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.tables.truth import TopPiece, find_top_pieces
from vitrail.data.image_set import ImageSet
from vitrail.explain.boxes import upsample
from vitrail.explain.faithfulness import (
    compare_with_random,
    deletion_curve,
    insertion_curve,
    randomize_network,
    rank_correlation,
)
from vitrail.metrics.classification import finite_or_none
from vitrail.models.heads.part_head import require_part_head
from vitrail.models.network import Network
from vitrail.rng import Key
from vitrail.runs.deployed import DeployedModel

_CELLS, _STEPS, _REPEATS = 8, 8, 3


@dataclass(frozen=True)
class FaithfulnessScores:
    """One explanation of a correct prediction.

    `deletion` and `insertion` are areas under the curve of the class's probability minus the mean
    area of random orders: below 0 and above 0 if the model needs what is marked. `same` is the
    rank correlation with the map of the same unit in the randomized model, None if one is flat.
    """

    row: int
    deletion: float
    insertion: float
    same: float | None


@torch.no_grad()
def measure_faithfulness(
    model: DeployedModel, images: ImageSet, rows: npt.NDArray[np.int64], key: Key, most: int = 20
) -> list[FaithfulnessScores]:
    """The figures of at most `most` correct predictions, drawn from some rows."""
    other = randomize_network(model.network, key.at("weights"))
    drawn = key.at("rows").numpy().permutation(rows)
    return [
        _measure_one(model.network, other, top, key.at("row", top.row))
        for top in islice(find_top_pieces(model, images, drawn), most)
    ]


def _measure_one(network: Network, other: Network, top: TopPiece, key: Key) -> FaithfulnessScores:
    fill = top.x.mean((1, 2), keepdim=True)

    def probability(x: Tensor) -> Tensor:
        probabilities: Tensor = network(x).softmax(1)[:, top.label]
        return probabilities

    map_ = _compute_map(network, top)
    gains = []
    for name, curve in (("deletion", deletion_curve), ("insertion", insertion_curve)):
        drawn = partial(curve, probability, top.x, steps=_STEPS, fill=fill)
        gains.append(compare_with_random(drawn, map_, key.at(name), _CELLS, _REPEATS).gain)
    same = finite_or_none(rank_correlation(map_, _compute_map(other, top)))
    return FaithfulnessScores(top.row, gains[0], gains[1], same)


def _compute_map(network: Network, top: TopPiece) -> Tensor:
    """The map of the piece's unit at the size of the image, in whichever network."""
    x = top.x[None]
    maps = require_part_head(network).maps(network.features(network.prefix(x)))[0]
    return upsample(maps[top.piece.unit], x.shape[2], x.shape[3])
