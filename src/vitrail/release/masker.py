"""What stands between the door and the wire where a site's update must not be seen alone."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from vitrail.errors import VitrailError
from vitrail.release.update import Update


class WithheldError(VitrailError):
    """A site keeps its update to itself; the sentence says why."""


class Masker(Protocol):
    """Hides one update of one site; `secure_aggregation` has the one that sums take off again."""

    @property
    def id(self) -> str:
        """What names this attempt."""
        ...

    @property
    def bytes(self) -> int:
        """The size of what will leave."""
        ...

    def describe(self) -> dict[str, object]:
        """What the ledger says of it."""
        ...

    def prepare(self, update: Update) -> None:
        """Check the update before it is written down; `WithheldError` if it is no good."""
        ...

    def check_repeat(self, round_: int, known: Set[str]) -> None:
        """`WithheldError` if a round, whose attempts are `known`, was tried too often."""
        ...

    def mask(self, update: Update) -> Update:
        """The update as it leaves."""
        ...
