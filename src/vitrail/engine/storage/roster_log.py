"""Who came to a federation, declined or left, in the order in which the coordinator noticed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.files import report_write_errors

ROSTER_FILE = "roster.jsonl"
"""In the server's folder of a federation with remote sites."""


@dataclass(frozen=True)
class RosterEvent:
    """What a site did before the first round (round 0) or after a later one."""

    round: int
    site: str
    event: str  # "joined", "declined" or "left"
    why: str = ""


@dataclass(frozen=True)
class RosterLog:
    """A file of JSON lines that only grows; a line that a killed process tore is skipped."""

    path: Path

    def add(self, round: int, site: str, event: str, why: str = "") -> None:
        """Append one event."""
        line = {"round": round, "site": site, "event": event, "why": why}
        with report_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(line) + "\n")

    def read(self) -> list[RosterEvent]:
        """Every event so far, none where there is no such file."""
        if not self.path.is_file():
            return []
        events = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                events.append(_parse_event(json.loads(line)))
        return events


def _parse_event(raw: dict[str, Any]) -> RosterEvent:
    return RosterEvent(
        int(raw["round"]), str(raw["site"]), str(raw["event"]), str(raw.get("why", ""))
    )
