"""Length-prefixed messages over a socket between the engine and its workers."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitrail.engine.workers.byte_frames import (
    ChannelClosedError as ChannelClosedError,
)
from vitrail.engine.workers.byte_frames import receive_frame, send_frame
from vitrail.wire import decode, encode


def send(
    channel: socket.socket, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Send one message; `ChannelClosedError` if nobody is there."""
    send_frame(channel, encode(header, tensors or {}))


def receive(channel: socket.socket) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Wait for one message; `ChannelClosedError` if the other end goes away first."""
    return decode(receive_frame(channel))


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
