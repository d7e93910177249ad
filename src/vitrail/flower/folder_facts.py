"""What a folder tells from outside: whether somebody works in it, and how large it is."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path

from vitrail.flower.events import Event


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock; it is looked at and let go, never kept."""
    if not file.is_file():
        return False
    with file.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def measure_folder(folder: Path) -> int:
    """Bytes of all files below a folder; one that goes away meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                total += path.stat().st_size
    return total


def find_last_error(events: list[Event]) -> dict[str, str] | None:
    """The last event that tells of trouble, with its time."""
    for event in reversed(events):
        if event.get("event") in ("error", "declined", "refused"):
            return {"time": str(event.get("time", "")), "text": str(event.get("text", ""))}
    return None
