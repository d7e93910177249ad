"""What attacks on shared images bring home, and what such an attack is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vitrail.attack.attack import Attack, Kind
from vitrail.attack.budget import Job
from vitrail.attack.membership import Membership
from vitrail.attack.originals import Originals
from vitrail.attack.shared import SharedTable
from vitrail.attack.trial import Row


@dataclass(frozen=True)
class Matching:
    """How often the nearest of `candidates` to a shared image is the one it was made of."""

    norm: str
    images: int
    candidates: int
    found: float

    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"direct matching, {self.norm}: {100 * self.found:.1f} % of {self.images} shared "
            f"images find their original among {self.candidates} (chance "
            f"{100 / self.candidates:.2g} %)"
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Spoils:
    """Images with their scores, matches, and who was a member."""

    rows: tuple[Row, ...] = ()
    matchings: tuple[Matching, ...] = ()
    members: tuple[Membership, ...] = ()


class SharedAttack(Attack):
    """An attack on images that sites shared; the truth is for scoring only."""

    kind: ClassVar[Kind] = "shared"

    def look(self, table: SharedTable, truth: Originals, job: Job) -> Spoils:
        """Try what can be tried."""
        raise NotImplementedError(f"{type(self).__name__} must define look")
