"""What carries messages: Flower's grid, or this process in tests and rehearsals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from vitrail.engine.tasks import MissingReply


class Link(Protocol):
    """The way from the coordinator to the sites and back."""

    def present(self) -> tuple[str, ...]:
        """The names of the sites that can be reached now."""
        ...

    def ask(
        self, messages: Mapping[str, bytes], patience: float
    ) -> dict[str, bytes | MissingReply]:
        """Send a message to each of some sites; what each answered, or why there is nothing."""
        ...
