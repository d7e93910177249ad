"""Contents of messages on their way through the coordinator: in files, not in memory.

A content that comes waits in a file until it is whole; only then, and when there is room, does
Flower's application get it in one piece. What it answers is put into a file at once, and sent from
there. So a slow site costs a file, and memory holds as many contents as fit into a fixed room.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from vitrail.flower.coordinator.connections import Pace

_ROOM = 2**26  # bytes of contents in memory at a time
_COPIES = 4  # of a content: as a request, as its message, as the object, as what is written
_MOST_OF_A_KEY = 2
_PIECE = 2**16

Event = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_GONE: Event = {"type": "http.disconnect"}


@dataclass
class Transfers:
    """Which keys have contents on their way, and how much of them is in memory."""

    folder: Path | None = None
    _of_keys: Counter[bytes] = field(default_factory=Counter)
    _queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _bytes: int = 0

    def begin(self, key: bytes) -> bool:
        """Whether this key may have one more under way; if so, it has."""
        if self._of_keys[key] >= _MOST_OF_A_KEY:
            return False
        self._of_keys[key] += 1
        return True

    def end(self, key: bytes) -> None:
        """One content of this key is no longer under way."""
        self._of_keys[key] -= 1
        if not self._of_keys[key]:
            del self._of_keys[key]

    def open_file(self) -> IO[bytes]:
        """Where a content waits. It has no name: nothing is left of it when this process ends."""
        return tempfile.TemporaryFile(dir=self.folder)

    @asynccontextmanager
    async def take_room(self, size: int) -> AsyncIterator[None]:
        """Memory for a content of this size, in the order of asking; one is always let through."""
        size *= _COPIES
        async with self._queue, self._freed:
            await self._freed.wait_for(lambda: not self._bytes or self._bytes + size <= _ROOM)
            self._bytes += size
        try:
            yield
        finally:
            async with self._freed:
                self._bytes -= size
                self._freed.notify_all()


@dataclass
class LimitedBody:
    """The body of a request as it comes, up to a limit; what is longer ends as if the other end had
    gone, and so does what comes too slowly."""

    incoming: Receive
    limit: int
    pace: Pace | None = None
    exceeded: bool = False
    whole: bool = False
    _size: int = 0

    async def receive(self) -> Event:
        """The next piece."""
        if self.exceeded:
            return _GONE
        if self.whole:  # what comes now is that the other end goes
            return await self.incoming()
        if self.pace is not None:
            self.pace.begin_wait()
        event = await self.incoming()
        size = len(event.get("body", b""))
        if self.pace is not None:
            self.pace.end_wait(size)
        self.whole = event["type"] == "http.request" and not event.get("more_body", False)
        self._size += size
        if self._size > self.limit:
            self.exceeded = True
            return _GONE
        return event

    async def save(self, file: IO[bytes]) -> int | None:
        """Write all of it into a file; its size, or None if it did not come to its end."""
        while not self.whole:
            event = await self.receive()
            if event["type"] != "http.request":
                return None
            file.write(event.get("body", b""))
        return self._size if not self.exceeded else None


@dataclass
class StoredAnswer:
    """Asks an application with a request in a file, and keeps what it answers in another."""

    request: IO[bytes]
    response: IO[bytes]
    start: Event | None = None
    _asked: bool = False
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, app: Application, scope: Scope) -> None:
        """Let the application answer; afterwards it holds nothing of either in memory."""
        await app(scope, self._receive, self._keep)

    async def _receive(self) -> Event:
        if self._asked:  # applications listen on, to hear that the other end went away
            await self._over.wait()
            return _GONE
        self._asked = True
        self.request.seek(0)
        return {"type": "http.request", "body": self.request.read(), "more_body": False}

    async def _keep(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self.start = event
        elif event["type"] == "http.response.body":
            self.response.write(event.get("body", b""))
            if not event.get("more_body"):
                self._over.set()

    async def send(self, send: Send) -> None:
        """Send the answer, piece by piece as it is read at the other end."""
        if self.start is None:
            return
        await send(self.start)
        left = self.response.tell()
        self.response.seek(0)
        while left > _PIECE:
            left -= _PIECE
            piece = self.response.read(_PIECE)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": self.response.read(left)})
