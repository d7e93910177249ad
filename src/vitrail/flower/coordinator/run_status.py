"""How a coordinator's run stands, read from its folder alone."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from vitrail.engine.federation import SERVER
from vitrail.engine.release_summary import format_size
from vitrail.engine.storage.roster_log import ROSTER_FILE, RosterLog
from vitrail.engine.storage.run_end import RUN_ID_FILE
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.files import is_locked
from vitrail.flower.events import EVENTS_FILE, Event, EventLog
from vitrail.flower.folder_facts import find_last_error, measure_folder
from vitrail.log_file import read_log

_MISSED = re.compile(r"^\S+ \S+ round (\d+): (?:refused|without) (.*)$")


@dataclass(frozen=True)
class CoordinatorStatus:
    """A run as its coordinator's folder has it; `awaited` are names, where keys name them."""

    run: str
    running: bool
    finished: bool
    round: int
    rounds: int
    sites: tuple[str, ...]
    awaited: tuple[str, ...]
    missing: int
    declined: dict[str, str]
    left: dict[str, str]
    absent: dict[str, str]
    last_error: dict[str, str] | None
    bytes_up: int
    bytes_down: int
    disk_bytes: int
    end: str = "coordinator"

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For an operator."""
        state = "running" if self.running else "finished" if self.finished else "not running"
        lines = [
            f"run         {self.run}, {state}",
            f"round       {self.round} of {self.rounds}",
            f"sites       {', '.join(self.sites) or 'none yet'}",
        ]
        if self.missing:
            lines.append(f"awaited     {', '.join(self.awaited) or f'{self.missing} more sites'}")
        lines += [f"declined    {site}: {why}" for site, why in self.declined.items()]
        lines += [f"left        {site}: {why}" for site, why in self.left.items()]
        lines += [f"absent      {s} in round {self.round}: {w}" for s, w in self.absent.items()]
        if self.last_error is not None:
            lines.append(f"last error  {self.last_error['time']} {self.last_error['text']}")
        moved = f"{format_size(self.bytes_up)} up, {format_size(self.bytes_down)} down"
        return [*lines, f"traffic     {moved}", f"disk        {format_size(self.disk_bytes)}"]


def read_coordinator_status(folder: RunFolder) -> CoordinatorStatus:
    """Read it; nothing is changed and nobody is asked."""
    config = folder.open().config
    rows = [row for row in folder.lines() if row["site"] == SERVER and "bytes_up" in row]
    events = EventLog(folder.server / EVENTS_FILE).read()
    roster = {event.site: event for event in RosterLog(folder.server / ROSTER_FILE).read()}
    running = is_locked(folder.path / "lock")
    awaited, missing = _find_awaited(events) if running else ((), 0)
    round_ = max((int(row["round"]) for row in rows), default=0)
    sites = _read_sites(folder)
    return CoordinatorStatus(
        run=str(json.loads((folder.server / RUN_ID_FILE).read_text(encoding="utf-8"))["run"]),
        running=running,
        finished=(folder.server / "finished").exists(),
        round=round_,
        rounds=config.run.rounds,
        sites=sites,
        awaited=awaited,
        missing=missing,
        declined={e.site: e.why for e in roster.values() if e.event == "declined"},
        left={e.site: e.why for e in roster.values() if e.event == "left"},
        absent=_read_absent(folder, sites, round_),
        last_error=find_last_error([e for e in events if e.get("event") == "error"]),
        bytes_up=sum(int(row["bytes_up"]) for row in rows),
        bytes_down=sum(int(row["bytes_down"]) for row in rows),
        disk_bytes=measure_folder(folder.path),
    )


def _read_sites(folder: RunFolder) -> tuple[str, ...]:
    """Who is in: the card names them once all that came were asked, until then the roster."""
    card = folder.server / "card.json"
    if card.is_file():
        return tuple(json.loads(card.read_text(encoding="utf-8"))["sites"])
    events = RosterLog(folder.server / ROSTER_FILE).read()
    return tuple({event.site: None for event in events if event.event == "joined"})


def _find_awaited(events: list[Event]) -> tuple[tuple[str, ...], int]:
    for event in reversed(events):
        if event.get("event") in ("awaiting", "complete"):
            return tuple(event.get("awaited", ())), int(event.get("missing", 0))
    return (), 0


def _read_absent(folder: RunFolder, sites: tuple[str, ...], round_: int) -> dict[str, str]:
    """Who did not count in the last round, and why, as the log tells it."""
    absent = {}
    for line in read_log(folder.log_file):
        match = _MISSED.match(line)
        if match is None or int(match[1]) != round_:
            continue
        site = next((name for name in sites if match[2].startswith(f"{name}: ")), None)
        if site is not None:
            absent[site] = match[2][len(site) + 2 :]
    return absent
