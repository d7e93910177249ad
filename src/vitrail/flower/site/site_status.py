"""How a site stands, read from its own folder alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitrail.engine.release_summary import format_size
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import VitrailError
from vitrail.files import is_locked
from vitrail.flower.events import EVENTS_FILE, Event, EventLog
from vitrail.flower.folder_facts import find_last_error, measure_folder
from vitrail.flower.site.site_config import FAREWELL_FILE, SiteConfig
from vitrail.runs.ledgers import SiteLedger


@dataclass(frozen=True)
class SiteRunStatus:
    """One run at a site: how far it is, what left, and what that cost by mechanism."""

    run: str
    round: int
    rounds: int
    finished: bool
    bytes: int
    epsilon: dict[str, float | None]

    def line(self) -> str:
        """For an operator."""
        state = "finished" if self.finished else "not finished"
        spent = "".join(
            f", epsilon {'infinity' if value is None else f'{value:.3g}'} spent by {name}"
            for name, value in self.epsilon.items()
        )
        moved = f"{format_size(self.bytes)} left this site"
        return f"run {self.run}  round {self.round} of {self.rounds}, {state}; {moved}{spent}"


@dataclass(frozen=True)
class SiteStatus:
    """A site and its runs; `proposals` wait for its operator."""

    site: str
    running: bool
    runs: tuple[SiteRunStatus, ...]
    proposals: tuple[str, ...]
    last_error: dict[str, str] | None
    last_event: Event | None
    disk_bytes: int
    end: str = "site"

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For an operator."""
        state = "running" if self.running else "not running"
        lines = [f"site        {self.site}, {state}", *(run.line() for run in self.runs)]
        lines += [f"proposal    run {run} waits for the operator" for run in self.proposals]
        if self.last_event is not None:
            when, text = self.last_event.get("time", ""), self.last_event.get("text", "")
            lines.append(f"last event  {when} {text}")
        if self.last_error is not None:
            lines.append(f"last error  {self.last_error['time']} {self.last_error['text']}")
        return [*lines, f"disk        {format_size(self.disk_bytes)}"]


def read_site_status(folder: Path, name: str = "") -> SiteStatus:
    """Read it; nothing is changed and nobody is asked."""
    events = EventLog(folder / EVENTS_FILE).read()
    paths = sorted((folder / "runs").glob("*/config.toml"), key=lambda path: path.stat().st_mtime)
    runs = [(path.parent, _read_name(RunFolder(path.parent))) for path in paths]
    name = name or next((own for _, own in reversed(runs)), "") or _find_name(events)
    config = SiteConfig(folder, name, {}, {}, folder)
    return SiteStatus(
        site=name or "unknown",
        running=is_locked(folder / "lock"),
        runs=tuple(_read_run(path, own) for path, own in runs),
        proposals=tuple(proposal.run for proposal in config.proposals()),
        last_error=find_last_error(events),
        last_event=events[-1] if events else None,
        disk_bytes=measure_folder(folder),
    )


def _read_run(path: Path, site: str) -> SiteRunStatus:
    folder = RunFolder(path)
    played = [int(row["round"]) for row in folder.lines() if row.get("bytes_up") is not None]
    ledger = SiteLedger(site, SiteFolder(path, site).ledger().lines())
    return SiteRunStatus(
        run=path.name,
        round=max(played, default=0),
        rounds=folder.open().config.run.rounds,
        finished=(folder.server / FAREWELL_FILE).exists(),
        bytes=ledger.formal.bytes + ledger.empirical.bytes,
        epsilon={budget["mechanism"]: budget["epsilon"] for budget in ledger.budgets},
    )


def _read_name(folder: RunFolder) -> str:
    """The site's name, which its part of a run bears."""
    try:
        return str(folder.open().config.partition.name)
    except VitrailError:
        return ""


def _find_name(events: list[Event]) -> str:
    return next((str(event["site"]) for event in reversed(events) if "site" in event), "")
