"""Length-prefixed messages over a socket between the engine and its workers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitrail.wire import decode, encode

_LENGTH = struct.Struct("<Q")


class ChannelClosedError(Exception):
    """The other end is gone."""


def send(
    channel: socket.socket, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Send one message; `ChannelClosedError` if nobody is there."""
    raw = encode(header, tensors or {})
    try:
        channel.sendall(_LENGTH.pack(len(raw)))
        channel.sendall(raw)
    except OSError as err:
        raise ChannelClosedError from err


def receive(channel: socket.socket) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Wait for one message; `ChannelClosedError` if the other end goes away first."""
    (length,) = _LENGTH.unpack(_receive_exactly(channel, _LENGTH.size))
    return decode(_receive_exactly(channel, length))


def send_handles(channel: socket.socket, handles: Sequence[int]) -> None:
    """Open files cross to the other process (Unix), which gets descriptors of its own."""
    try:
        socket.send_fds(channel, [b"\0"], list(handles))
    except OSError as err:
        raise ChannelClosedError from err


def receive_handles(channel: socket.socket, count: int) -> list[int]:
    """What `send_handles` sent."""
    try:
        data, handles, _, _ = socket.recv_fds(channel, 1, count)
    except OSError as err:
        raise ChannelClosedError from err
    if not data:
        raise ChannelClosedError
    return handles


def _receive_exactly(channel: socket.socket, count: int) -> bytearray:
    raw = bytearray(count)
    view, at = memoryview(raw), 0
    while at < count:
        try:
            got = channel.recv_into(view[at:])
        except OSError as err:
            raise ChannelClosedError from err
        if got == 0:
            raise ChannelClosedError
        at += got
    return raw
