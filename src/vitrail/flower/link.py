"""What carries messages: Flower's Fleet interface, or this process in tests and rehearsals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from vitrail.engine.tasks import MissingReply

MakeMessage = Callable[[str], bytes]
"""Seals the message of one site, when its turn has come to be sent."""
Answered = tuple[str, bytes | MissingReply]


class Link(Protocol):
    """The way from the coordinator to the sites and back."""

    def present(self) -> tuple[str, ...]:
        """The names of the sites that can be reached now."""
        ...

    def ask(
        self, sites: Sequence[str], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        """Send a message to each of some sites; what each answered, or why there is nothing, in
        the order in which it came. No more than one message is in memory at a time."""
        ...
