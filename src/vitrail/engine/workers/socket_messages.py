"""Length-prefixed messages over a socket between the engine and its workers."""

from __future__ import annotations

import os
import queue
import socket
import threading
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


class AnswerSender:
    """Sends what a worker computed in a thread of its own, in order.

    The engine reads an answer when it comes to it. Meanwhile the worker takes its next job, and
    two large messages that meet in one socket do not wait for each other.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting: queue.Queue[bytes] = queue.Queue(maxsize=2)
        threading.Thread(target=self._run, daemon=True).start()

    def send(self, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Hand over one message, copied as it is now; waits while two others are on their way."""
        self._waiting.put(encode(header, tensors or {}))

    def _run(self) -> None:
        while True:
            try:
                send_frame(self._channel, self._waiting.get())
            except ChannelClosedError:
                os._exit(0)  # nobody is there any more to answer to


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
