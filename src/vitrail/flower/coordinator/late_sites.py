"""Sites that come after the start: the terms are put before each while the rounds go on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from vitrail.engine.tasks import MissingReply
from vitrail.flower.envelope import OpenedMessage

Greet = Callable[[str], OpenedMessage | MissingReply]
"""Puts the terms before one site and waits for its answer."""


@dataclass
class LateSites:
    """Who was asked to join, and who has answered. A site is asked once as long as this lasts."""

    _asked: set[str] = field(default_factory=set)
    _answers: queue.SimpleQueue[tuple[str, OpenedMessage | MissingReply]] = field(
        default_factory=queue.SimpleQueue
    )

    def note_asked(self, sites: Sequence[str]) -> None:
        """Remember who was asked before the first round: a no is not asked about again."""
        self._asked |= set(sites)

    def ask(self, sites: Sequence[str], greet: Greet) -> None:
        """Ask those that were not asked yet, each by a thread: an operator may take hours."""
        for site in sites:
            if site not in self._asked:
                self._asked.add(site)
                threading.Thread(target=self._ask, args=(site, greet), daemon=True).start()

    def take_answers(self) -> Iterator[tuple[str, OpenedMessage | MissingReply]]:
        """The answers that have come since."""
        while not self._answers.empty():  # nobody else takes any
            yield self._answers.get_nowait()

    def forget(self, site: str) -> None:
        """Ask a site again when it is there: it was away, and has not declined."""
        self._asked.discard(site)

    def _ask(self, site: str, greet: Greet) -> None:
        with suppress(Exception):  # the run may end, and its link with it, before an answer
            self._answers.put((site, greet(site)))
