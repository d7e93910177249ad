"""What is known of a run without looking at any image: its figures, ledgers and findings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vitrail.engine.federation import SERVER
from vitrail.engine.storage.roster_log import ROSTER_FILE, RosterEvent, RosterLog
from vitrail.engine.storage.run_folder import HISTORY_FILE
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.log_file import read_log
from vitrail.runs.arrivals import read_arrivals
from vitrail.runs.opened_run import Run

AUDIT, FIDELITY = "audit.json", "fidelity.json"
ATTACK, LEAKAGE = "attack.json", "leakage.json"
_LOG = re.compile(r"^\S+ \S+ round (\d+): (refused|without) (.*)$")


@dataclass(frozen=True)
class MissedUpdate:
    """A site whose update did not count in a round, and why."""

    round: int
    site: str
    kind: str  # "refused" or "dropped"
    reason: str


@dataclass(frozen=True)
class RunRecord:
    """One run; `name` tells it from the others of the report."""

    run: Run
    name: str
    rows: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Any] | None
    ledgers: Mapping[str, Sequence[Mapping[str, Any]]]
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    has_private_metrics: bool = False  # figures that never left a site are among `rows`
    seen_by: str | None = None  # the site that this was narrowed down to

    @staticmethod
    def read(run: Run, name: str) -> RunRecord:
        """Read what lies in a run folder."""
        ledgers: Mapping[str, Sequence[Mapping[str, Any]]] = (
            read_arrivals(run)
            if run.end == "coordinator"
            else {site: SiteFolder(run.path, site).ledger().lines() for site in run.sites}
        )
        results = {
            file: read
            for file in (AUDIT, ATTACK, LEAKAGE, FIDELITY, HISTORY_FILE)
            if (read := _read_json(run.path / file)) is not None
        }
        kept = run.folder.read_private_metrics()
        return RunRecord(
            run,
            name,
            _fill_in_private(run.rows(), kept),
            _read_json(run.path / "partition.json"),
            ledgers,
            results,
            bool(kept),
        )

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that the record is about."""
        return self.run.sites if self.seen_by is None else (self.seen_by,)

    @property
    def is_public(self) -> bool:
        """Whether the images are nobody's secret."""
        return bool(self.run.card.get("public"))

    @cached_property
    def server_rows(self) -> list[Mapping[str, Any]]:
        """The rows of the global model and of whole rounds."""
        return [row for row in self.rows if row["site"] == SERVER]

    def list_site_rows(self, site: str) -> list[Mapping[str, Any]]:
        """The rows of one site, in order of rounds."""
        return [row for row in self.rows if row["site"] == site]

    def get_last(self, site: str, metric: str) -> float | None:
        """The newest value of a metric at a site."""
        values = [row[metric] for row in self.list_site_rows(site) if row.get(metric) is not None]
        return float(values[-1]) if values else None

    def get_total(self, site: str, metric: str) -> float | None:
        """The sum of a metric over rounds, None if it was never told."""
        values = [row[metric] for row in self.list_site_rows(site) if row.get(metric) is not None]
        return float(sum(values)) if values else None

    def count_rounds(self, site: str) -> int:
        """The rounds that a site trained in; where none are told, those it sent something in."""
        rows = self.list_site_rows(site)
        counts = (
            sum(row.get(name) is not None for row in rows)
            for name in ("steps", "image_steps", "bytes_up")
        )
        return next((count for count in counts if count), 0)

    @property
    def images(self) -> tuple[int, int]:
        """How many training and test images there are in all."""
        if self.counts is None:
            return self._count_told("examples"), self._count_told("test_examples")
        train = sum(map(sum, self.counts["train"]))
        return train, sum(map(sum, self.counts["test"])) + int(self.counts["server_test"])

    def _count_told(self, metric: str) -> int:
        """What sites told of their images with their figures; 0 where nobody told anything."""
        return int(sum(self.get_last(site, metric) or 0.0 for site in self.run.sites))

    @cached_property
    def roster_events(self) -> list[RosterEvent]:
        """Who came, declined and left, where sites are remote."""
        return RosterLog(self.run.folder.server / ROSTER_FILE).read()

    @cached_property
    def missed_updates(self) -> list[MissedUpdate]:
        """Refused updates and dropouts, as the log tells them."""
        return [
            missed
            for line in read_log(self.run.folder.log_file)
            if (missed := self._parse_missed_update(line)) is not None
        ]

    def _parse_missed_update(self, line: str) -> MissedUpdate | None:
        match = _LOG.match(line)
        if match is None:
            return None
        round_, verb, rest = match.groups()
        site = next((s for s in self.run.sites if rest.startswith(f"{s}: ")), None)
        if site is None:
            return None
        kind = "refused" if verb == "refused" else "dropped"
        return MissedUpdate(int(round_), site, kind, rest[len(site) + 2 :])


def _fill_in_private(
    rows: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Rows with the figures that a site kept for itself, where nothing was told in their place."""
    by_place: dict[tuple[int, str], dict[str, Any]] = {}
    for line in kept:
        by_place.setdefault((line["round"], line["site"]), {}).update(line)
    return [{**by_place.get((row["round"], row["site"]), {}), **_drop_unknown(row)} for row in rows]


def _drop_unknown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if the file is not there."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise RunError(
            f"{path.name} cannot be read ({err})",
            where=str(path.parent),
            hint="Delete it, or make it again.",
        ) from err
    if not isinstance(content, dict):
        raise RunError(f"{path.name} is not a JSON object", where=str(path.parent))
    return content
