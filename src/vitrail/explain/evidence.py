"""Evidence for a prediction: the parts of an image that a logit rests on, in numbers that add up.

Chen et al. 2019, arXiv:1806.10574: similarity times weight, summed over the prototypes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.data.decoding.resize import Mode, make_resize_transform
from vitrail.errors import ConfigError, RunError
from vitrail.explain.boxes import find_boxes
from vitrail.models.heads.part_head import Piece, require_part_head
from vitrail.models.network import Network

Box = tuple[int, int, int, int]  # x0, y0, x1, y1, right and lower edge excluded

OTHER = "other"
_TOLERANCE = 1e-3  # of the sum of absolute contributions: a logit is a sum in single precision


@dataclass(frozen=True)
class Contribution:
    """One row of the evidence: `contribution = score x weight`.

    `box` is in pixels of the original image and `square` in those of the resized one that the
    model saw; both are None for what has no place. `map` is the activation over positions. In
    the last row, `other`, all units that are not listed are summed; it has no score or weight.
    """

    part: str
    contribution: float
    score: float | None = None
    weight: float | None = None
    box: Box | None = None
    square: Box | None = None
    unit: int | None = None
    owner: int | None = None
    map: Tensor | None = None
    units: int = 1  # how many units are summed in this row

    def to_json(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return {
            "contribution": self.contribution,
            "score": self.score,
            "weight": self.weight,
            "box": None if self.box is None else list(self.box),
            "part": self.part,
            "unit": self.unit,
            "units": self.units,
        }


@dataclass(frozen=True)
class ClassEvidence:
    """What speaks for and against one class; the contributions add up to the logit."""

    name: str
    label: int
    logit: float
    contributions: tuple[Contribution, ...]

    def to_json(self) -> dict[str, Any]:
        """The class as JSON has it."""
        rows = [row.to_json() for row in self.contributions]
        return {"class": self.name, "logit": self.logit, "contributions": rows}


def to_json(evidence: Sequence[ClassEvidence]) -> list[dict[str, Any]]:
    """Evidence as a list of classes, each with its logit and what adds up to it."""
    return [one.to_json() for one in evidence]


@torch.no_grad()
def compute_evidence(
    network: Network,
    x: Tensor,
    labels: Sequence[int],
    classes: Sequence[str],
    top: int = 5,
    size: tuple[int, int] | None = None,
    resize: Mode = "crop",
) -> list[ClassEvidence]:
    """Why a network gives one normalized image [C, H, W] its logits for some classes.

    The `top` contributions by absolute value are listed, the others summed in a last row.
    `size` is the height and width of the original image and `resize` how it became a square.
    """
    head = require_part_head(network)
    if top < 1:
        raise ConfigError(f"top = {top} would list nothing", where="top", hint="Use 1 or more.")
    image = x if x.dim() == 4 else x[None]
    if len(image) != 1:
        raise ConfigError(f"evidence is for one image, and these are {len(image)}")
    z = network.features(network.prefix(image))
    logits = head(z)["logits"][0]
    side = (image.shape[2], image.shape[3])
    evidence = []
    for label in labels:
        pieces = head.pieces(z, label)
        logit = check_sum(float(logits[label]), pieces)
        rows = make_rows(pieces, classes, top, side, size or side, resize)
        evidence.append(ClassEvidence(classes[label], int(label), logit, rows))
    return evidence


def check_sum(logit: float, pieces: Sequence[Piece]) -> float:
    """The sum of the pieces in double precision, if the network's own logit is that sum."""
    total = math.fsum(piece.contribution for piece in pieces)
    room = _TOLERANCE * (1 + math.fsum(abs(piece.contribution) for piece in pieces))
    if not math.isfinite(logit) or not math.isfinite(total):
        raise RunError(
            "the model's output for this image is not a finite number",
            hint="Its training diverged: lower the learning rate, or use an earlier run.",
        )
    if abs(total - logit) > room:
        raise RunError(f"the pieces of this head add up to {total:.6g}, its logit is {logit:.6g}")
    return total


def make_rows(
    pieces: Sequence[Piece],
    classes: Sequence[str],
    top: int,
    side: tuple[int, int],
    size: tuple[int, int],
    resize: Mode,
) -> tuple[Contribution, ...]:
    """The largest pieces, and one row for what is left."""
    ranked = rank_pieces(pieces)
    rows = []
    for piece in ranked[:top]:
        square = locate_piece(piece, pieces, side)
        rows.append(
            Contribution(
                part=name_part(piece, classes),
                contribution=piece.contribution,
                score=piece.score,
                weight=piece.weight,
                box=None if square is None else to_original(square, side, size, resize),
                square=square,
                unit=piece.unit,
                owner=piece.owner,
                map=piece.map,
            )
        )
    rest = ranked[top:]
    left = math.fsum(piece.contribution for piece in rest)
    return (*rows, Contribution(OTHER, left, units=len(rest)))


def rank_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces by what they contribute, whatever its sign, the largest first."""
    return sorted(pieces, key=lambda piece: -abs(piece.contribution))


def locate_piece(piece: Piece, pieces: Sequence[Piece], side: tuple[int, int]) -> Box | None:
    """Where one of a logit's pieces lies in an image of height and width `side`: the box of its
    map, or its own patch if other pieces share that map."""
    if piece.map is None:
        return None
    several = sum(one.unit == piece.unit and one.map is not None for one in pieces) > 1
    if not several or piece.at is None:
        return find_box(piece.map, side)
    (row, column), (rows, columns) = piece.at, piece.map.shape
    height, width = side
    return (
        column * width // columns,
        row * height // rows,
        -(-(column + 1) * width // columns),
        -(-(row + 1) * height // rows),
    )


def name_part(piece: Piece, classes: Sequence[str]) -> str:
    """Such as "prototype 3 of class crested"."""
    if piece.owner is None:
        return piece.name
    bare = piece.name.removesuffix(f" of class {piece.owner}")
    return f"{bare} of class {classes[piece.owner]}"


def find_box(map_: Tensor, side: tuple[int, int]) -> Box:
    """The box of one map [h, w] in an image of height and width `side`."""
    x0, y0, x1, y1 = find_boxes(map_, *side).tolist()
    return x0, y0, x1, y1


def to_original(
    square: Box, side: tuple[int, int], size: tuple[int, int], resize: Mode
) -> Box | None:
    """A box of the resized image in whole pixels of the original; None if it is all padding."""
    height, width = size
    if size == side:
        return square
    # resizing gives squares, so one side stands for both
    place = make_resize_transform(width, height, side[0], resize).to_original(square).round(6)
    low = np.floor(place[:2]).clip(0, (width, height))
    high = np.ceil(place[2:]).clip(0, (width, height))
    if (low >= high).any():
        return None
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])
