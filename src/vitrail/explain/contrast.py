"""Why this class and not that one: parts by what they give to the difference of two logits.

A part that speaks for both classes alike takes no side between them, however much it gives to each;
it is counted apart, as shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.data.decoding.resize import Mode
from vitrail.errors import ConfigError
from vitrail.explain.evidence import (
    OTHER,
    Box,
    ClassEvidence,
    Contribution,
    check_sum,
    locate_piece,
    name_part,
    to_original,
)
from vitrail.models.heads.part_head import Piece, require_part_head
from vitrail.models.network import Network

JOINED = 0.5  # the overlap of two boxes over their union from which they are one region


@dataclass(frozen=True)
class Contrast:
    """What tells one class from another. `evidence` adds up to the difference of the two logits;
    `shared` is what both logits have alike, which takes no side."""

    evidence: ClassEvidence
    against: str
    shared: float


@dataclass(frozen=True)
class _Term:
    """One unit's part in the difference."""

    piece: Piece
    difference: float
    shared: float
    square: Box | None


@torch.no_grad()
def compute_contrast(
    network: Network,
    x: Tensor,
    label: int,
    against: int,
    classes: Sequence[str],
    top: int = 5,
    size: tuple[int, int] | None = None,
    resize: Mode = "crop",
) -> Contrast:
    """Why a network gives one normalized image [C, H, W] more (or less) for `label` than for
    `against`. Parts that lie on one region are one row; the `top` rows are listed, the others
    summed in a last one."""
    if label == against:
        raise ConfigError(
            f"{classes[label]!r} cannot be set against itself",
            where="--against",
            hint="It is the predicted class: name another.",
        )
    head = require_part_head(network)
    image = x if x.dim() == 4 else x[None]
    z = network.features(network.prefix(image))
    logits = head(z)["logits"][0]
    ours, theirs = head.pieces(z, label), head.pieces(z, against)
    sides = check_sum(float(logits[label]), ours), check_sum(float(logits[against]), theirs)
    side = (image.shape[2], image.shape[3])
    terms = _subtract(ours, theirs, side)
    regions = _join_regions(terms)
    listed = regions[:top]
    rows = [_make_row(region, classes, side, size or side, resize) for region in listed]
    rest = [term for region in regions[top:] for term in region]
    left = math.fsum(term.difference for term in rest)
    evidence = ClassEvidence(
        f"{classes[label]} rather than {classes[against]}",
        label,
        sides[0] - sides[1],
        (*rows, Contribution(OTHER, left, units=len(rest))),
    )
    return Contrast(evidence, classes[against], math.fsum(term.shared for term in terms))


def _subtract(ours: Sequence[Piece], theirs: Sequence[Piece], side: tuple[int, int]) -> list[_Term]:
    """What each unit, at each of its places, gives to one logit less what it gives to the other."""
    other = {_key(piece): piece for piece in theirs}
    terms = []
    for piece in ours:
        twin = other.pop(_key(piece), None)
        b = 0.0 if twin is None else twin.contribution
        terms.append(
            _Term(
                piece,
                piece.contribution - b,
                _overlap(piece.contribution, b),
                locate_piece(piece, ours, side),
            )
        )
    for piece in other.values():
        terms.append(_Term(piece, -piece.contribution, 0.0, locate_piece(piece, theirs, side)))
    return terms


def _key(piece: Piece) -> tuple[object, ...]:
    return (piece.unit, piece.at, piece.name)


def _overlap(a: float, b: float) -> float:
    """What two contributions have alike: nothing if they point to different sides."""
    return math.copysign(min(abs(a), abs(b)), a) if a * b > 0 else 0.0


def _join_regions(terms: Sequence[_Term]) -> list[list[_Term]]:
    """Terms on one place together, the region with the largest sum first."""
    regions: list[list[_Term]] = []
    for term in sorted(terms, key=lambda one: -abs(one.difference)):
        home = next((r for r in regions if _is_one_place(r[0].square, term.square)), None)
        if home is None:
            regions.append([term])
        else:
            home.append(term)
    return sorted(regions, key=lambda region: -abs(math.fsum(t.difference for t in region)))


def _is_one_place(one: Box | None, other: Box | None) -> bool:
    if one is None or other is None:
        return False
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or high <= 0:
        return False
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return wide * high / (sum(areas) - wide * high) >= JOINED


def _make_row(
    region: Sequence[_Term],
    classes: Sequence[str],
    side: tuple[int, int],
    size: tuple[int, int],
    resize: Mode,
) -> Contribution:
    """One region: named and placed by its strongest part."""
    first = region[0]
    more = f" and {len(region) - 1} more here" if len(region) > 1 else ""
    square = first.square
    return Contribution(
        part=name_part(first.piece, classes) + more,
        contribution=math.fsum(term.difference for term in region),
        box=None if square is None else to_original(square, side, size, resize),
        square=square,
        unit=first.piece.unit,
        owner=first.piece.owner,
        map=first.piece.map,
        units=len(region),
    )
