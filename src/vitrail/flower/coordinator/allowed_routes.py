"""What gets from the network to Flower's application: known paths, known keys, bounded bodies.

Flower reads and parses a whole request before it looks at who sent it. Here the headers decide
first: a key that is not registered is answered without reading on, and nobody sends more than the
largest reply of the run.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from vitrail.flower.carrier import NOT_LET_IN
from vitrail.flower.coordinator.quiet_teller import QuietTeller
from vitrail.flower.envelope import MAX_HEADER_BYTES

_FLEET = "/v1/fleet/"
ROUTES = frozenset(
    _FLEET + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
"""What a registered node needs, and all that the network can reach."""
OPEN_ROUTES = frozenset(_FLEET + name for name in ("register-node", "unregister-node"))
"""What nodes without keys need beside that; only where everybody is on one machine."""
_PUSH_OBJECT, _PULL_OBJECT = _FLEET + "push-object", _FLEET + "pull-object"
_SMALL_BODY = 2**16  # of everything but the content of a reply
_WRAPPING = 2**12  # what Flower adds to a content
_IN_FLIGHT = 2**28  # bytes of contents on their way through this process
_COPIES = 4  # of a content: in the request, as its message, in the object, on its way to disk
_MOST_OF_A_KEY = 2
_IDLE_SECONDS = 30.0
_UNKNOWN, _TOO_LARGE, _TOO_MANY = 401, 413, 429

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
IsKnown = Callable[[bytes], bool]


@dataclass
class Transfers:
    """Contents that are on their way: few a key, and so many together that memory is bounded."""

    _of_keys: Counter[bytes] = field(default_factory=Counter)
    _condition: asyncio.Condition = field(default_factory=asyncio.Condition)
    _bytes: int = 0

    async def begin(self, key: bytes, size: int) -> bool:
        """Wait until there is room for a content of this size; one is always let through. Whether
        this key may have one more under way."""
        if self._of_keys[key] >= _MOST_OF_A_KEY:
            return False
        self._of_keys[key] += 1
        try:
            async with self._condition:
                await self._condition.wait_for(
                    lambda: not self._bytes or self._bytes + size <= _IN_FLIGHT
                )
                self._bytes += size
        except BaseException:
            self._forget(key)
            raise
        return True

    async def end(self, key: bytes, size: int) -> None:
        """Make room for others."""
        self._forget(key)
        async with self._condition:
            self._bytes -= size
            self._condition.notify_all()

    def _forget(self, key: bytes) -> None:
        self._of_keys[key] -= 1
        if not self._of_keys[key]:
            del self._of_keys[key]


class AllowedRoutes:
    """An ASGI application that hands on requests for some paths; others do not exist here.

    `is_known` says whether a public key is registered; None lets everybody in. `largest_reply` and
    `largest_message` grow as soon as it is known how large they may be.
    """

    def __init__(
        self,
        app: Application,
        paths: frozenset[str],
        tell: Callable[[str], None] | None = None,
        is_known: IsKnown | None = None,
    ) -> None:
        self.app = app
        self.paths = paths
        self.quiet = None if tell is None else QuietTeller(tell)
        self.is_known = is_known
        self.largest_reply = self.largest_message = MAX_HEADER_BYTES
        self._transfers = Transfers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only plain requests to allowed paths get through, and nothing that upgrades them."""
        if scope["type"] != "http":
            return
        if scope["path"] not in self.paths or scope["method"] != "POST":
            await _refuse(404, send)
            return
        send = self._watch(scope, send)
        headers = dict(scope.get("headers", ()))
        key = _read_key(headers)
        heavy = scope["path"] in (_PUSH_OBJECT, _PULL_OBJECT)
        if self.is_known is not None and not (
            self.is_known(key) and (not heavy or _is_signed(key, headers))
        ):
            await _refuse(_UNKNOWN, send)
            return
        limit = self.largest_reply + _WRAPPING if scope["path"] == _PUSH_OBJECT else _SMALL_BODY
        length = _read_length(headers)
        body = LimitedBody(receive, limit)
        if length is not None and length > limit:
            await _refuse(_TOO_LARGE, send)
        elif not heavy:
            await self._hand_on(scope, body, send)
        elif scope["path"] == _PUSH_OBJECT:
            await self._transfer(key, limit if length is None else length, scope, body, send)
        else:
            await self._transfer(key, self.largest_message, scope, body, send)

    async def _transfer(
        self, key: bytes, size: int, scope: Scope, body: LimitedBody, send: Send
    ) -> None:
        """Hand a content on when there is room for it. It is over with the last piece of the
        response; Flower's application goes on listening after that."""
        size *= _COPIES
        if not await self._transfers.begin(key, size):
            await _refuse(_TOO_MANY, send)
            return
        over = False

        async def end() -> None:
            nonlocal over
            if not over:
                over = True
                await self._transfers.end(key, size)

        async def send_and_end(event: Event) -> None:
            try:
                await send(event)
            finally:
                if event["type"] == "http.response.body" and not event.get("more_body"):
                    await end()

        try:
            await self._hand_on(scope, body, send_and_end)
        finally:
            await end()

    async def _hand_on(self, scope: Scope, body: LimitedBody, send: Send) -> None:
        """Let Flower answer; a body that turned out too long is answered here."""
        began = False

        async def note_start(event: Event) -> None:
            nonlocal began
            if not (body.exceeded or began):
                began = event["type"] == "http.response.start"
            if began and not body.exceeded:
                await send(event)

        try:
            await self.app(scope, body.receive, note_start)
        except Exception:
            if not body.exceeded:
                raise
        if body.exceeded and not began:
            await _refuse(_TOO_LARGE, send)

    def _watch(self, scope: Scope, send: Send) -> Send:
        """Hand a response on; that a key was not let in is told, once a minute and address."""

        async def hand_on(event: Event) -> None:
            refused = event["type"] == "http.response.start" and event["status"] in NOT_LET_IN
            if refused and self.quiet is not None:
                host = str((scope.get("client") or ("somewhere",))[0])
                self.quiet.tell_of(
                    host,
                    f"a site at {host} was not let in: its key is not registered here, or is "
                    "connected already",
                )
            await send(event)

        return hand_on


@dataclass
class LimitedBody:
    """The body of a request as it comes, up to a limit and without long silences; what is longer
    ends as if the other end had gone."""

    incoming: Receive
    limit: int
    exceeded: bool = False
    _size: int = 0
    _whole: bool = False

    async def receive(self) -> Event:
        """The next piece."""
        if self.exceeded:
            return {"type": "http.disconnect"}
        if self._whole:  # what comes now is that the other end goes
            return await self.incoming()
        try:
            event = await asyncio.wait_for(self.incoming(), _IDLE_SECONDS)
        except TimeoutError:
            return {"type": "http.disconnect"}
        self._whole = not event.get("more_body", False)
        self._size += len(event.get("body", b""))
        if self._size > self.limit:
            self.exceeded = True
            return {"type": "http.disconnect"}
        return event


async def _refuse(status: int, send: Send) -> None:
    headers = [(b"content-length", b"0")]
    if status != 404:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _read_key(headers: dict[bytes, bytes]) -> bytes:
    try:
        return b64decode(
            headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode(), b""), None, True
        )
    except binascii.Error:
        return b""


def _is_signed(key: bytes, headers: dict[bytes, bytes]) -> bool:
    """Whether the time in the headers is signed with the key; Flower looks at the time itself."""
    try:
        stamp = headers[TIMESTAMP_HEADER.lower().encode()]
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.lower().encode()], None, True)
        return bool(verify_signature(bytes_to_public_key(key), stamp, signature))
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _read_length(headers: dict[bytes, bytes]) -> int | None:
    raw = headers.get(b"content-length", b"")
    return int(raw[:20]) if raw.isdigit() else None
