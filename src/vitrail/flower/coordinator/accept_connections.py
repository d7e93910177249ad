"""What listens on the coordinator's port: every connection is counted before it may say a word.

uvicorn would shake hands with whoever comes, as many as come, and wait for their requests without
an end. Here a connection is counted when it is accepted, and cut off where `Connections` says so.
h11 reads the requests: it bounds the head of one, which httptools does not. The loop is asyncio's
own: uvloop loses what comes between a connection and its handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr

from vitrail.flower.coordinator.connections import Address, Connections

_HANDSHAKE_SECONDS = 15.0


class CountedProtocol(H11Protocol):
    """uvicorn's own, for one connection; its table hears when the connection is gone."""

    table: Connections
    address: Address
    _early: bytes = b""
    _made = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to read requests; what came with the end of the handshake is read first."""
        super().connection_made(transport)
        self._made = True
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Read on; before the connection is made known, what comes waits."""
        if self._made:
            super().data_received(data)
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.table.forget(self.address)
        if self._made:
            super().connection_lost(exc)


class AcceptedConnection(asyncio.Protocol):
    """A connection that was just accepted: counted, then made secure, then handed to uvicorn's."""

    def __init__(
        self, table: Connections, context: ssl.SSLContext | None, **of_uvicorn: Any
    ) -> None:
        self._table = table
        self._context = context
        self._of_uvicorn = of_uvicorn
        self._address: Address = ("", 0)
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and go on."""
        address = get_remote_addr(transport)
        if address is None:  # gone already
            transport.abort()
            return
        self._address = address
        self._table.admit(address, transport.abort)
        http = CountedProtocol(**self._of_uvicorn)
        http.table, http.address = self._table, address
        if self._context is None:
            transport.set_protocol(http)
            http.connection_made(transport)
        else:
            transport.pause_reading()  # what comes is for the handshake, which begins in a moment
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._secure(transport, http, self._context))

    def connection_lost(self, exc: Exception | None) -> None:
        """It was gone before it was handed on."""
        del exc
        self._table.forget(self._address)

    async def _secure(
        self, transport: asyncio.Transport, http: CountedProtocol, context: ssl.SSLContext
    ) -> None:
        """Shake hands; whoever does not do so in time, or distrusts us, is cut off."""
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                transport,
                http,
                context,
                server_side=True,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except (OSError, TimeoutError):  # ssl.SSLError is an OSError
            secure = None
        if secure is None:
            self._table.forget(self._address)
            transport.abort()
        else:
            http.connection_made(secure)
