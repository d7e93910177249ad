"""What a folder tells from outside: how large it is, and what went wrong in it last."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from vitrail.flower.events import Event


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
