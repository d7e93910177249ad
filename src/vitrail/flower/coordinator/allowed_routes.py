"""What gets from the network to Flower's application: known paths, known keys, bounded bodies.

Flower reads and parses a whole request before it looks at who sent it. Here the headers decide
first: who shows no registered key is answered without reading on, and nobody sends more than the
largest reply of the run.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from vitrail.flower.carrier import NOT_LET_IN
from vitrail.flower.coordinator.connections import Connection, Connections
from vitrail.flower.coordinator.quiet_teller import QuietTeller
from vitrail.flower.coordinator.transfers import (
    Application,
    Event,
    LimitedBody,
    Receive,
    Scope,
    Send,
    StoredAnswer,
    Transfers,
)
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
_UNKNOWN, _TOO_LARGE, _TOO_MANY = 401, 413, 429

IsKnown = Callable[[bytes], bool]


class AllowedRoutes:
    """An ASGI application that hands on requests for some paths; others do not exist here.

    `is_known` says whether a public key is registered; None lets everybody in. `largest_reply` and
    `largest_message` grow as soon as it is known how large they may be; contents wait in `folder`.
    """

    def __init__(
        self,
        app: Application,
        paths: frozenset[str],
        tell: Callable[[str], None] | None = None,
        is_known: IsKnown | None = None,
        folder: Path | None = None,
    ) -> None:
        self.app = app
        self.paths = paths
        self.quiet = None if tell is None else QuietTeller(tell)
        self.is_known = is_known
        self.largest_reply = self.largest_message = MAX_HEADER_BYTES
        self.connections = Connections()
        self._transfers = Transfers(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only plain requests to allowed paths get through, and nothing that upgrades them."""
        if scope["type"] != "http":
            return
        connection = self.connections.begin(scope.get("client"))
        try:
            send = self._watch(scope, self._expect_reader(connection, send))
            if scope["path"] not in self.paths or scope["method"] != "POST":
                await _refuse(404, send)
            else:
                await self._answer(connection, scope, receive, send)
        finally:
            self.connections.end(connection)

    async def _answer(
        self, connection: Connection, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = dict(scope.get("headers", ()))
        key = _read_key(headers)
        if self.is_known is not None and not (
            self.is_known(key) and (connection.key == key or _is_signed(key, headers))
        ):  # a connection that this key was shown on is its own: Flower looks at the rest
            await _refuse(_UNKNOWN, send)
            return
        self.connections.prove(connection, key, limited=self.is_known is not None)
        limit = self.largest_reply + _WRAPPING if scope["path"] == _PUSH_OBJECT else _SMALL_BODY
        length = _read_length(headers)
        body = LimitedBody(receive, limit, self.connections.pace(connection))
        if length is not None and length > limit:
            await _refuse(_TOO_LARGE, send)
        elif scope["path"] in (_PUSH_OBJECT, _PULL_OBJECT):
            await self._transfer(key, scope, body, send)
        else:
            await self._hand_on(scope, body, send)

    async def _transfer(self, key: bytes, scope: Scope, body: LimitedBody, send: Send) -> None:
        """Answer a request that brings or fetches a content; both ways it waits in a file."""
        if not self._transfers.begin(key):
            await _refuse(_TOO_MANY, send)
            return
        try:
            with self._transfers.open_file() as request, self._transfers.open_file() as response:
                size = await body.save(request)
                if size is None:
                    await _refuse(_TOO_LARGE, send)
                    return
                if scope["path"] == _PULL_OBJECT:
                    size = self.largest_message
                answer = StoredAnswer(request, response)
                async with self._transfers.take_room(size):
                    await answer.ask(self.app, scope)
                await answer.send(send)
        finally:
            self._transfers.end(key)

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

    def _expect_reader(self, connection: Connection, send: Send) -> Send:
        """Whoever does not read what is sent is cut off after a while."""
        pace = self.connections.pace(connection)

        async def hand_on(event: Event) -> None:
            if connection.key is not None:  # a stranger has a time of its own, which is short
                pace.begin_wait()
            await send(event)
            if connection.key is not None:
                pace.end_wait(len(event.get("body", b"")))

        return hand_on

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
