"""Alarms: which sites have been odd over several rounds, and what is done about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from vitrail.aggregate.update_watch import LARGEST, Oddness
from vitrail.config.schema import Aggregate
from vitrail.files import write_text

ALARM_FILE = "alarms.jsonl"
ALLOWANCE = 3.0
"""What a round's score is allowed to be without adding up (Page 1954, CUSUM)."""
THRESHOLD = 14.0
"""The sum at which a site is under alarm; docs/explanation/poisoning.md says how it was chosen."""
FALSE_ALARMS = (0, 120)
"""Runs without an attacker in which any site came under alarm, of how many, for either rule of
`vitrail reproduce poisoning-quiet`: both saw the same images, so that they do not add up."""
_BOUND_FACTOR, _BOUND_ROUNDS, _FEWEST_ROUNDS = 5.0, 10, 3


@dataclass
class Alarms:
    """The history of a run, in `server/alarms.jsonl`: one line a round."""

    folder: Path
    options: Aggregate
    sums: dict[str, float] = field(default_factory=dict)
    _lengths: list[float] = field(default_factory=list)
    _until: dict[str, int] = field(default_factory=dict)
    _excluded: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / ALARM_FILE

    def restore(self, begun: int) -> None:
        """Go back to the end of a round, as if nothing had been played after it."""
        lines = read_alarms(self.path)
        kept = [line for line in lines if line["round"] <= begun]
        if len(kept) < len(lines):
            write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self.sums, self._lengths, self._until, self._excluded = {}, [], {}, {}
        for line in kept:
            self._take(line)

    def record(self, round_: int, oddness: Mapping[str, Oddness]) -> list[str]:
        """Add a round to the history; returns the sites that come under alarm with it."""
        if not oddness:
            return []
        sites, bound = {}, self.compute_norm_bound()
        for site, odd in oddness.items():
            score = LARGEST if bound is not None and odd.length > bound else odd.score
            grown = max(0.0, self.sums.get(site, 0.0) + score - ALLOWANCE)
            sites[site] = {**odd.to_json(), "score": round(score, 4), "sum": round(grown, 4)}
        before = {site for site, total in self.sums.items() if total >= THRESHOLD}
        self._write({"round": round_, "sites": sites})
        return [s for s in sites if self.sums[s] >= THRESHOLD and s not in before]

    def exclude(self, round_: int, sites: Mapping[str, str]) -> None:
        """Leave sites out of all rounds to come, each for a reason: who lies in the steps of a
        secure sum would make every round void."""
        if sites:
            self._write({"round": round_, "sites": {}, "excluded": dict(sites)})

    def list_quarantined(self, round_: int) -> dict[str, str]:
        """The sites that a round leaves out, each with the reason."""
        held = {
            site: f"in quarantine after an alarm, until round {last}"
            for site, last in self._until.items()
            if round_ <= last
        }
        return {**held, **self._excluded}

    def compute_norm_bound(self) -> float | None:
        """The largest change that past rounds make plausible; None before there are enough."""
        if len(self._lengths) < _FEWEST_ROUNDS:
            return None
        return _BOUND_FACTOR * median(self._lengths[-_BOUND_ROUNDS:])

    def _write(self, line: Mapping[str, Any]) -> None:
        self._take(line)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as handle:
            handle.write(json.dumps(line) + "\n")

    def _take(self, line: Mapping[str, Any]) -> None:
        round_, sites = line["round"], line["sites"]
        if "excluded" in line:
            why = f"left out since round {round_}: "
            self._excluded |= {site: why + reason for site, reason in line["excluded"].items()}
            return
        for site, figures in sites.items():
            self.sums[site] = figures["sum"]
            if figures["sum"] >= THRESHOLD and self.options.quarantine:
                self._until[site] = round_ + self.options.quarantine
                self.sums[site] = 0.0  # after its time a site begins anew
        self._lengths.append(median(figures["length"] for figures in sites.values()))


def find_alarmed(lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The first round in which each site was under alarm."""
    first: dict[str, int] = {}
    for line in lines:
        for site, figures in line["sites"].items():
            if figures["sum"] >= THRESHOLD:
                first.setdefault(site, int(line["round"]))
    return first


def find_peaks(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The highest sum that each site's oddness came to."""
    peaks: dict[str, float] = {}
    for line in lines:
        for site, figures in line["sites"].items():
            peaks[site] = max(peaks.get(site, 0.0), float(figures["sum"]))
    return peaks


def read_alarms(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's alarms; a torn last one is left out."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
