"""Images that were dropped: kept in memory under their digest, a few at a time, never on disk."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from starlette.requests import Request

from vitrail.errors import DataError

MOST_BYTES = 64 * 2**20  # of one upload
_KEPT_BYTES = 256 * 2**20  # of all of them


class Uploads:
    """The newest uploads; older ones go when the room is full."""

    def __init__(self, most: int = MOST_BYTES, kept: int = _KEPT_BYTES) -> None:
        self.most, self.kept = most, kept
        self._items: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    async def receive(self, request: Request) -> bytes:
        """The bytes of an image."""
        return await receive_body(request, self.most)

    def put(self, name: str, data: bytes) -> str:
        """Keep an upload; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()[:32]
        with self._lock:
            self._items[digest] = (name[:120], data)
            self._items.move_to_end(digest)
            while sum(len(d) for _, d in self._items.values()) > self.kept and len(self._items) > 1:
                self._items.popitem(last=False)
        return digest

    def get(self, digest: str) -> tuple[str, bytes]:
        """Name and bytes of an upload that is still there."""
        with self._lock:
            if digest not in self._items:
                raise DataError(
                    "this image is no longer in memory", hint="Drop it again: nothing was stored."
                )
            return self._items[digest]


async def receive_body(request: Request, most: int) -> bytes:
    """The body of a request, refused as soon as it is too large, whatever its header says."""
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdecimal() and int(length[:20]) > most:
        raise TooLargeError(most)
    parts, total = [], 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > most:
            raise TooLargeError(most)
        parts.append(chunk)
    return b"".join(parts)


class TooLargeError(DataError):
    """A body beyond the bound."""

    def __init__(self, most: int) -> None:
        size = f"{most // 2**20} MB" if most >= 2**20 else f"{most // 2**10} kB"
        super().__init__(f"this is larger than {size}", hint="Send one image, or less text.")
