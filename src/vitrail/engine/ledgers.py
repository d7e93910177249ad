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
from vitrail.engine.folder import RunFolder
from vitrail.engine.loaded import Run
from vitrail.engine.sitefolder import SiteFolder
from vitrail.errors import RunError, nearest
from vitrail.release.ledger import is_remark
from vitrail.release.promise import NOTHING, events_of, recount

Line = Mapping[str, Any]
_CLOSE = 1e-6


@dataclass(frozen=True)
class Sums:
    """How many releases, and how many bytes of tensors and figures."""

    releases: int = 0
    bytes: int = 0

    @staticmethod
    def of(lines: Iterable[Line]) -> Sums:
        """Over some lines of a ledger."""
        sizes = [int(line.get("bytes", 0)) for line in lines]
        return Sums(len(sizes), sum(sizes))


@dataclass(frozen=True)
class SiteLedger:
    """One site's ledger."""

    site: str
    lines: Sequence[Line]

    @property
    def told(self) -> list[Line]:
        """Everything that left, and remarks on parts of it: each line with a guarantee."""
        return [x for x in self.lines if x.get("guarantee") not in (None, NOTHING)]

    @property
    def left(self) -> list[Line]:
        """Everything that left, once: releases of rounds, and what was told beside them."""
        return [x for x in self.told if not is_remark(x)]

    @property
    def formal(self) -> Sums:
        """What left under a proof."""
        return Sums.of(x for x in self.left if is_formal(x))

    @property
    def empirical(self) -> Sums:
        """What left without one."""
        return Sums.of(x for x in self.left if not is_formal(x))

    @property
    def budgets(self) -> list[Line]:
        """The last word of every mechanism: what it has spent in all."""
        found: dict[str, Line] = {}
        for line in self.lines:
            for spend in line.get("spends", ()):
                found[spend["mechanism"]] = spend
        return list(found.values())

    @property
    def simulated(self) -> bool:
        """Whether its noise follows from the run's seed."""
        return any(line.get("secret") == "simulated" for line in self.lines)

    def by_round(self) -> dict[int, int]:
        """Bytes released in each round."""
        found: dict[int, int] = defaultdict(int)
        for line in self.lines:
            if line.get("kind") in ("release", "repeat"):
                found[line["round"]] += int(line["bytes"])
        return dict(found)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "site": self.site,
            "formal": vars(self.formal),
            "empirical": vars(self.empirical),
            "budgets": [dict(budget) for budget in self.budgets],
            "simulated": self.simulated,
            "lines": [dict(line) for line in self.lines],
        }


@dataclass(frozen=True)
class Ledgers:
    """The ledgers of a run and everything in them that does not agree."""

    sites: Sequence[SiteLedger]
    mismatches: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        sites = [site.to_json() for site in self.sites]
        totals = {
            word: {unit: sum(site[word][unit] for site in sites) for unit in ("releases", "bytes")}
            for word in ("formal", "empirical")
        }
        return {"sites": sites, "totals": totals, "mismatches": list(self.mismatches)}


def is_formal(line: Line) -> bool:
    """Whether a line carries a proof."""
    return str(line.get("guarantee", "")).startswith("formal")


def read_ledgers(path: str | Path, site: str | None = None) -> Ledgers:
    """All ledgers of a run, or one site's, checked."""
    run = Run(path)
    if site is not None and site not in run.sites:
        raise RunError(f"there is no site {site!r} in this run", hint=nearest(site, run.sites))
    names = run.sites if site is None else (site,)
    sites = [SiteLedger(name, SiteFolder(run.path, name).ledger().lines()) for name in names]
    found = [text for each in sites for text in _recounted(each)]
    found += list(_arrived(run.folder, sites, whole=site is None))
    return Ledgers(sites, found)


def _recounted(site: SiteLedger) -> Iterator[str]:
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
            events = events_of(site.lines[: at + 1], spend["mechanism"])
            real, said = recount(spend, events), spend["epsilon"]
            if not _same(real, math.inf if said is None else said):
                yield (
                    f"{site.site}: after round {line['round']} {spend['mechanism']} had spent "
                    f"epsilon {real:.4g}, and the ledger says {said}"
                )
            if spend["target"] is not None and real > spend["target"] * (1 + _CLOSE):
                yield (
                    f"{site.site}: {spend['mechanism']} has spent epsilon {real:.4g}, more than "
                    f"its target {spend['target']:g}"
                )


def _same(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= _CLOSE * max(one, other)


def _arrived(folder: RunFolder, sites: Sequence[SiteLedger], whole: bool) -> Iterator[str]:
    """Whether the bytes that arrived in each round are those that the sites wrote down.

    With every ledger at hand the server's own sums count, else the site's rows. A round in which
    a site was lost on the way may have fewer arrive than left, never more.
    """
    by_site = {each.site: each.by_round() for each in sites}
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
