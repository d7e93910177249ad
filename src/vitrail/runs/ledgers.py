"""The ledgers of a run read back: sums by site, formal and empirical apart, and whether they hold.

Three things must agree: what the sites wrote down, what arrived at the server, and what the
accountant makes of the noise that the lines name.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.engine.federation import SERVER
from vitrail.engine.storage.run_end import RunEnd
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError, suggest_name
from vitrail.release.accounting.promise import NOTHING, read_events, recount
from vitrail.release.ledger import is_remark
from vitrail.release.patient_budgets import PatientBudget, list_patient_budgets
from vitrail.runs.arrivals import read_arrivals
from vitrail.runs.opened_run import Run

Line = Mapping[str, Any]
_CLOSE = 1e-6


@dataclass(frozen=True)
class ReleaseTotals:
    """How many releases, and how many bytes of tensors and figures."""

    releases: int = 0
    bytes: int = 0

    @staticmethod
    def of(lines: Iterable[Line]) -> ReleaseTotals:
        """Over some lines of a ledger."""
        sizes = [int(line.get("bytes", 0)) for line in lines]
        return ReleaseTotals(len(sizes), sum(sizes))


@dataclass(frozen=True)
class SiteLedger:
    """One site's ledger."""

    site: str
    lines: Sequence[Line]

    @property
    def guaranteed_lines(self) -> list[Line]:
        """Everything that left, and remarks on parts of it: each line with a guarantee."""
        return [x for x in self.lines if x.get("guarantee") not in (None, NOTHING)]

    @property
    def released_lines(self) -> list[Line]:
        """Everything that left, once: releases of rounds, and what was told beside them."""
        return [x for x in self.guaranteed_lines if not is_remark(x)]

    @property
    def formal(self) -> ReleaseTotals:
        """What left under a proof."""
        return ReleaseTotals.of(x for x in self.released_lines if is_formal(x))

    @property
    def empirical(self) -> ReleaseTotals:
        """What left without one."""
        return ReleaseTotals.of(x for x in self.released_lines if not is_formal(x))

    @property
    def budgets(self) -> list[Line]:
        """The last word of every mechanism: what it has spent in all."""
        last: dict[str, Line] = {}
        for line in self.lines:
            for spend in line.get("spends", ()):
                last[spend["mechanism"]] = spend
        return list(last.values())

    @property
    def patient_budgets(self) -> list[PatientBudget]:
        """What budgets for one image come to for all images of the largest patient."""
        return list_patient_budgets(self.site, self.lines)

    @property
    def simulated(self) -> bool:
        """Whether its noise follows from the run's seed."""
        return any(line.get("secret") == "simulated" for line in self.lines)

    def by_round(self) -> dict[int, int]:
        """Bytes released in each round."""
        sizes: dict[int, int] = defaultdict(int)
        for line in self.lines:
            if line.get("kind") in ("release", "repeat"):
                sizes[line["round"]] += int(line["bytes"])
        return dict(sizes)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "site": self.site,
            "formal": vars(self.formal),
            "empirical": vars(self.empirical),
            "budgets": [dict(budget) for budget in self.budgets],
            "patient_budgets": [vars(budget) for budget in self.patient_budgets],
            "simulated": self.simulated,
            "lines": [dict(line) for line in self.lines],
        }


@dataclass(frozen=True)
class Ledgers:
    """The ledgers of a run and everything in them that does not agree."""

    sites: Sequence[SiteLedger]
    mismatches: Sequence[str] = field(default_factory=tuple)
    end: RunEnd = "simulation"

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        sites = [site.to_json() for site in self.sites]
        totals = {
            word: {unit: sum(site[word][unit] for site in sites) for unit in ("releases", "bytes")}
            for word in ("formal", "empirical")
        }
        content = {"sites": sites, "totals": totals, "mismatches": list(self.mismatches)}
        return content if self.end == "simulation" else {"end": self.end, **content}


def is_formal(line: Line) -> bool:
    """Whether a line carries a proof."""
    return str(line.get("guarantee", "")).startswith("formal")


def read_ledgers(path: str | Path, site: str | None = None) -> Ledgers:
    """All ledgers of a run, or one site's, checked; a coordinator has what reached it instead."""
    run = Run(path)
    if site is not None and site not in run.sites:
        raise RunError(f"there is no site {site!r} in this run", hint=suggest_name(site, run.sites))
    names = run.sites if site is None else (site,)
    if run.end == "coordinator":
        arrivals = read_arrivals(run)
        return Ledgers([SiteLedger(name, arrivals[name]) for name in names], end=run.end)
    sites = [SiteLedger(name, SiteFolder(run.path, name).ledger().lines()) for name in names]
    mismatches = [text for ledger in sites for text in _check_totals(ledger)]
    mismatches += list(_check_received_bytes(run.folder, sites, whole=site is None))
    return Ledgers(sites, mismatches, run.end)


def _check_totals(site: SiteLedger) -> Iterator[str]:
    """Whether every line's sum is that of the events up to it, and no target is passed."""
    seen: set[tuple[Any, Any]] = set()
    for at, line in enumerate(site.lines):
        if line.get("kind") != "release":
            continue
        key = (line["round"], line["message"])
        if key in seen:
            yield f"{site.site}: round {line['round']} was written down twice for one message"
        seen.add(key)
        for spend in line.get("spends", ()):
            events = read_events(site.lines[: at + 1], spend["mechanism"])
            real, stated = recount(spend, events), spend["epsilon"]
            if not _is_close(real, math.inf if stated is None else stated):
                yield (
                    f"{site.site}: after round {line['round']} {spend['mechanism']} had spent "
                    f"epsilon {real:.4g}, and the ledger says {stated}"
                )
            if spend["target"] is not None and real > spend["target"] * (1 + _CLOSE):
                yield (
                    f"{site.site}: {spend['mechanism']} has spent epsilon {real:.4g}, more than "
                    f"its target {spend['target']:g}"
                )


def _is_close(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= _CLOSE * max(one, other)


def _check_received_bytes(
    folder: RunFolder, sites: Sequence[SiteLedger], whole: bool
) -> Iterator[str]:
    """Whether the bytes that arrived in each round are those that the sites wrote down.

    With every ledger at hand the server's own sums count, else the site's rows. A round in which
    a site was lost on the way may have fewer arrive than left, never more.
    """
    by_site = {ledger.site: ledger.by_round() for ledger in sites}
    for row in folder.rows():
        if row.get("bytes_up") is None or (row["site"] == SERVER) is not whole:
            continue
        if not whole and row["site"] not in by_site:
            continue
        counted = by_site.values() if whole else [by_site[row["site"]]]
        left = sum(rounds.get(row["round"], 0) for rounds in counted)
        arrived, lost = int(row["bytes_up"]), bool(row.get("dropped"))
        if arrived > left or (arrived < left and not lost):
            yield (
                f"round {row['round']}: {arrived:,} bytes arrived, and the ledgers say that "
                f"{left:,} left"
            )
