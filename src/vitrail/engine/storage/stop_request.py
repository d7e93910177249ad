"""Asking a running run to stop when its round is over: a file in its folder."""

from __future__ import annotations

from pathlib import Path

from vitrail.files import write_text

_FILE = "stop"


def request_stop(folder: Path) -> None:
    """Ask; the run stops after the round it is in, and can be resumed."""
    write_text(folder / _FILE, "")


def has_stop_request(folder: Path) -> bool:
    """Whether somebody asked."""
    return (folder / _FILE).exists()


def clear_stop_request(folder: Path) -> None:
    """It was heard, or the run goes on."""
    (folder / _FILE).unlink(missing_ok=True)
