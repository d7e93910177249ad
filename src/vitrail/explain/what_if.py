"""What a model that explains itself would say without some of its units or some places.

A unit that is switched off gives nothing to any logit; a place that is switched off is not seen by
any unit, so the next best place counts. `pull` scales what units of other classes give to a class
(in FedGraSP the entries of G off the diagonal). Logits stay sums of contributions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.models.heads.part_head import PartHead, Piece

Place = tuple[int, int]  # row and column of a map of patches


@dataclass(frozen=True)
class WhatIf:
    """What is changed about a head; the default changes nothing."""

    units: frozenset[int] = frozenset()
    places: frozenset[Place] = frozenset()
    pull: float = 1.0

    @staticmethod
    def parse(without: Sequence[int | Place], pull: float = 1.0) -> WhatIf:
        """From a list in which a number is a unit and a pair is a place."""
        units = frozenset(int(item) for item in without if not isinstance(item, tuple | list))
        places = frozenset(
            (int(item[0]), int(item[1])) for item in without if isinstance(item, tuple | list)
        )
        if not -10 <= pull <= 10:  # NaN fails too
            raise ConfigError(f"a pull of {pull} is not from -10 to 10", where="pull")
        return WhatIf(units, places, float(pull))

    @property
    def is_plain(self) -> bool:
        """Whether nothing is changed."""
        return self == WhatIf()


class ChangedHead:
    """A head over one image's map of patches [1, D, H, W], changed as asked."""

    def __init__(self, head: PartHead, z: Tensor, change: WhatIf) -> None:
        self.head, self.change = head, change
        self.shape: Place = (z.shape[2], z.shape[3])
        unknown = sorted(u for u in change.units if not 0 <= u < len(head.owner))
        if unknown:
            raise ConfigError(
                f"there is no unit {unknown[0]} in this model",
                where="without",
                hint=f"Units are numbered from 0 to {len(head.owner) - 1}.",
            )
        self.kept = _keep_places(self.shape, change.places)
        self.z = z if not change.places else z.flatten(2)[:, :, None, self.kept]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """All logits in double precision, [classes]."""
        gives = self.head.compute_contributions(self.head.measure(self.z))[0].double()
        classes = torch.arange(len(gives), device=gives.device)
        foreign = self.head.owner[None] != classes[:, None]
        gives = torch.where(foreign, self.change.pull * gives, gives)
        gives[:, sorted(self.change.units)] = 0
        return gives.sum(1)

    def pieces(self, label: int) -> list[Piece]:
        """The terms of one logit that are left, in the coordinates of the whole map."""
        kept = (p for p in self.head.pieces(self.z, label) if p.unit not in self.change.units)
        return [self._change(piece, label) for piece in kept]

    def _change(self, piece: Piece, label: int) -> Piece:
        if piece.owner is not None and piece.owner != label and self.change.pull != 1:
            piece = replace(
                piece,
                weight=piece.weight * self.change.pull,
                contribution=piece.contribution * self.change.pull,
            )
        if not self.change.places or piece.map is None:
            return piece
        values = piece.map.flatten()
        whole = values.min().expand(self.shape[0] * self.shape[1]).clone()
        whole[self.kept] = values
        at = None if piece.at is None else divmod(int(self.kept[piece.at[1]]), self.shape[1])
        return replace(piece, map=whole.view(self.shape), at=at)


def _keep_places(shape: Place, places: frozenset[Place]) -> Tensor:
    """The numbers of the places that are left."""
    rows, columns = shape
    for row, column in places:
        if not (0 <= row < rows and 0 <= column < columns):
            raise ConfigError(
                f"there is no place ({row}, {column}) in a map of {rows} x {columns} patches",
                where="without",
            )
    if len(places) >= rows * columns:
        raise ConfigError("no place is left to look at", where="without")
    left = [i for i in range(rows * columns) if divmod(i, columns) not in places]
    return torch.tensor(left)
