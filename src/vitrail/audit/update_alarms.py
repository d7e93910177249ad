"""What the server's alarms saw of a run: how odd each site's updates were, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitrail.engine.alarms import (
    ALARM_FILE,
    FALSE_ALARMS,
    THRESHOLD,
    find_alarmed,
    find_peaks,
    read_alarms,
)
from vitrail.metrics.binomial import exact_interval
from vitrail.runs.opened_run import Run

_MASKED = (
    "The server saw sums only, so no update was compared with the others: a site that sent a "
    "poisoned update, or did not clip its change, cannot be told from these records"
)
_OFF = "Updates were not compared with each other (aggregate.alarms = false)"
_NOTHING = "No round had enough updates to compare"


@dataclass(frozen=True)
class UpdateAlarms:
    """The sums of each site's oddness by round; `first` maps sites under alarm to their first
    round under it. `unseen` says why there is nothing, and is empty where there is something."""

    sums: Mapping[str, Mapping[int, float]]
    first: Mapping[str, int]
    peaks: Mapping[str, float]
    unseen: str = ""

    def describe(self) -> list[str]:
        """Sentences: who came under alarm and when, what that is worth, or why nobody can say."""
        if self.unseen:
            return [f"{self.unseen}."]
        rounds = len({round_ for sums in self.sums.values() for round_ in sums})
        if not self.first:
            odd = max(self.peaks, key=self.peaks.__getitem__)
            said = f"no site under alarm in {rounds} rounds; the oddest was {odd}, "
            said += f"{self.peaks[odd]:.1f} of {THRESHOLD:g}"
        else:
            named = ", ".join(f"{site} from round {first}" for site, first in self.first.items())
            said = f"under alarm: {named} ({rounds} rounds)"
        return [f"{said}.", f"{describe_false_alarms()}."]

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        hits, runs = FALSE_ALARMS
        return {
            "unseen": self.unseen or None,
            "threshold": THRESHOLD,
            "false_alarms": {"runs": runs, "with_alarm": hits, "says": describe_false_alarms()},
            "sites": {
                site: {
                    "first_alarm": self.first.get(site),
                    "peak": self.peaks[site],
                    "sums": {str(round_): total for round_, total in sums.items()},
                }
                for site, sums in self.sums.items()
            },
        }


def describe_false_alarms() -> str:
    """How often honest federations have an alarm, as measured."""
    hits, runs = FALSE_ALARMS
    low, high = exact_interval(hits, runs)
    return (
        f"An alarm is a reason to look, not a proof: of {runs} runs without an attacker {hits} had "
        f"one (95 % interval {100 * low:.1f} to {100 * high:.1f} % of runs; "
        "`vitrail reproduce poisoning-quiet`)"
    )


def read_update_alarms(run: Run) -> UpdateAlarms:
    """The alarms of a run, from the server's own log."""
    lines = [line for line in read_alarms(run.path / "server" / ALARM_FILE) if line["sites"]]
    if not lines:
        secure, watching = run.config.release.secure_sum, run.config.aggregate.alarms
        return UpdateAlarms({}, {}, {}, _MASKED if secure else _NOTHING if watching else _OFF)
    sums: dict[str, dict[int, float]] = {}
    for line in lines:
        for site, figures in line["sites"].items():
            sums.setdefault(site, {})[int(line["round"])] = float(figures["sum"])
    return UpdateAlarms(sums, find_alarmed(lines), find_peaks(lines))
