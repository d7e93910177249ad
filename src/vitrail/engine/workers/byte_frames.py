"""Length-prefixed bytes over a socket between two processes. Imports nothing heavy."""

from __future__ import annotations

import socket
import struct

_LENGTH = struct.Struct("<Q")


class ChannelClosedError(Exception):
    """The other end is gone."""


def send_frame(channel: socket.socket, raw: bytes) -> None:
    """Send some bytes; `ChannelClosedError` if nobody is there."""
    try:
        channel.sendall(_LENGTH.pack(len(raw)))
        channel.sendall(raw)
    except OSError as err:
        raise ChannelClosedError from err


def receive_frame(channel: socket.socket) -> bytearray:
    """Wait for what `send_frame` sent; `ChannelClosedError` if the other end goes away first."""
    (length,) = _LENGTH.unpack(_receive_exactly(channel, _LENGTH.size))
    return _receive_exactly(channel, length)


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
