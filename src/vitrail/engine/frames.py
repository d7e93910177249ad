"""Length-prefixed messages over a socket between the engine and its workers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitrail.wire import decode, encode

_LENGTH = struct.Struct("<Q")


class Closed(Exception):
    """The other end is gone."""


def send(
    channel: socket.socket, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Send one message; `Closed` if nobody is there."""
    raw = encode(header, tensors or {})
    try:
        channel.sendall(_LENGTH.pack(len(raw)))
        channel.sendall(raw)
    except OSError as err:
        raise Closed from err


def receive(channel: socket.socket) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Wait for one message; `Closed` if the other end goes away first."""
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return decode(_exactly(channel, length))


def send_handles(channel: socket.socket, handles: Sequence[int]) -> None:
    """Open files cross to the other process (Unix), which gets descriptors of its own."""
    try:
        socket.send_fds(channel, [b"\0"], list(handles))
    except OSError as err:
        raise Closed from err


def receive_handles(channel: socket.socket, count: int) -> list[int]:
    """What `send_handles` sent."""
    try:
        data, handles, _, _ = socket.recv_fds(channel, 1, count)
    except OSError as err:
        raise Closed from err
    if not data:
        raise Closed
    return handles


def _exactly(channel: socket.socket, count: int) -> bytearray:
    raw = bytearray(count)
    view, at = memoryview(raw), 0
    while at < count:
        try:
            got = channel.recv_into(view[at:])
        except OSError as err:
            raise Closed from err
        if got == 0:
            raise Closed
        at += got
    return raw
