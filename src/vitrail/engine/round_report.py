"""What one round came to, for the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vitrail.release.update import Update


@dataclass
class RoundReport:
    """What one round came to."""

    round: int
    updates: list[Update] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    void: bool = False
    shortage: str = ""  # why a void round has too few updates for its rule
    alarmed: tuple[str, ...] = ()  # sites that come under alarm with it
    figures: dict[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # by site: bytes up, down

    def count(self, site: str, up: int, down: int) -> None:
        """Add what went to one site and came from it."""
        before = self.sizes.get(site, (0, 0))
        self.sizes[site] = (before[0] + up, before[1] + down)
        self.bytes_up += up
        self.bytes_down += down
