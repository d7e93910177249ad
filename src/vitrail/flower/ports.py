"""Ports of this machine, and the hint of whoever lacks Flower."""

from __future__ import annotations

import socket

INSTALL = 'Install the extra: pip install -c constraints.txt "vitrail[flower]".'


def is_listening(host: str, port: int) -> bool:
    """Whether a connection can be opened."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


def find_free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
