"""Who is connected to the coordinator's port: how many, how long, and who gives way.

A connection is a stranger's until a registered key was shown on it. Strangers have seconds to do
so, and are few; where more come, the oldest one of the address with the most of them gives way.
A key has few connections; where it opens more, its oldest one gives way. Whoever stops sending or
reading in the middle of something is cut off. So nobody's connections stand in others' way.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEAD_SECONDS = 20.0  # from a connection, or from the last answer, to a whole request head
_SILENT_SECONDS = 30.0
_LEAST_RATE = 2**12  # bytes a second, over a whole request or answer
_MOST_STRANGERS = 128
_MOST_OF_A_KEY = 8  # a site has two: its messages and its heartbeat
_HANDLES_OF_A_KEY = 4 + 4  # connections, and files that its contents wait in
_OWN_HANDLES = 256  # of the coordinator itself

Address = tuple[str, int]
Clock = Callable[[], float]


@dataclass(eq=False)
class Connection:
    """One connection: since when, whose, and until when something must happen on it. `busy` counts
    the requests that are being answered."""

    address: Address
    since: float
    deadline: float | None
    abort: Callable[[], None]
    key: bytes | None = None
    busy: int = 0


@dataclass
class Pace:
    """How fast the other end sends or reads: never silent for long, and not a byte now and then."""

    connection: Connection
    clock: Clock
    _began: float | None = None
    _bytes: int = 0

    def begin_wait(self) -> None:
        """Something is to come from the other end now."""
        now = self.clock()
        self._began = now if self._began is None else self._began
        slowest = self._began + _SILENT_SECONDS + self._bytes / _LEAST_RATE
        self.connection.deadline = min(now + _SILENT_SECONDS, slowest)

    def end_wait(self, size: int) -> None:
        """So many bytes came, or went; what happens next is this end's."""
        self._bytes += size
        self.connection.deadline = None


@dataclass
class Connections:
    """All connections by their address."""

    clock: Clock = time.monotonic
    most_strangers: int = _MOST_STRANGERS
    _open: dict[Address, Connection] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: Address, abort: Callable[[], None]) -> None:
        """Take in a connection; one stranger too many gives way."""
        now = self.clock()
        self._open[address] = Connection(address, now, now + _HEAD_SECONDS, abort)
        strangers = [one for one in self._open.values() if one.key is None]
        if len(strangers) > self.most_strangers:
            ((crowded, _),) = Counter(one.address[0] for one in strangers).most_common(1)
            self._cut_oldest([one for one in strangers if one.address[0] == crowded])

    def forget(self, address: Address) -> None:
        """A connection is gone."""
        self._open.pop(address, None)

    def begin(self, address: Any) -> Connection:
        """A request was heard: its connection, or one that nobody limits where there is none."""
        connection = self._open.get(address) if isinstance(address, tuple) else None
        if connection is None:
            connection = Connection(("", 0), self.clock(), None, lambda: None)
        connection.busy += 1
        if connection.key is not None:
            connection.deadline = None
        return connection

    def end(self, connection: Connection) -> None:
        """A request was answered; the next one is awaited for a while, from those who are known."""
        connection.busy -= 1
        if connection.key is not None and not connection.busy:
            connection.deadline = self.clock() + _HEAD_SECONDS

    def prove(self, connection: Connection, key: bytes, limited: bool = True) -> None:
        """A registered key was shown on a connection; one too many of this key gives way."""
        connection.key, connection.deadline = key, None
        if not limited:
            return
        own = [one for one in self._open.values() if one.key == key]
        if len(own) > _MOST_OF_A_KEY:
            self._cut_oldest([one for one in own if one is not connection])

    def sweep(self) -> None:
        """Cut off whoever is too late."""
        now = self.clock()
        for connection in list(self._open.values()):
            if connection.deadline is not None and now > connection.deadline:
                self._cut(connection)

    def _cut_oldest(self, connections: Sequence[Connection]) -> None:
        self._cut(min(connections, key=lambda one: one.since))

    def _cut(self, connection: Connection) -> None:
        """End a connection without waiting for its other end; it counts no longer."""
        self.forget(connection.address)
        connection.abort()

    def pace(self, connection: Connection) -> Pace:
        """To be kept by the other end of a connection."""
        return Pace(connection, self.clock)


def allow_handles(keys: int) -> int:
    """Raise this process's limit on open files to what connections need; how many strangers fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OWN_HANDLES + _MOST_STRANGERS + _HANDLES_OF_A_KEY * max(keys, 1)
    needed += _MOST_OF_A_KEY  # one key may have all of its own
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        soft = needed
    spare = _MOST_STRANGERS if soft == resource.RLIM_INFINITY else soft - _OWN_HANDLES
    return max(8, min(_MOST_STRANGERS, spare // 2))
