"""The figures of the audit's claims: what was found, where it was sought, and false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.tables.audit_trial import Case, run_cases
from experiments.tables.audit_trial_figure import draw_p_values
from experiments.tables.markdown import to_markdown
from vitrail.config import Loaded
from vitrail.metrics.binomial import exact_interval
from vitrail.metrics.ranking import auc
from vitrail.sweep.cells import make_cells
from vitrail.sweep.tables import TABLES, OnCell


def collect_unbiased_p_values(cases: Sequence[Case]) -> list[float]:
    """The exact p-value of every pair of the federations in which nothing was injected."""
    return [pair.raw_p for case in cases if case.truth is None for pair in case.scores]


@dataclass(frozen=True)
class Trial:
    """The figures of the claims, for one set of federations."""

    biased: int
    judged: int  # biased ones whose site has images enough to say anything of the class
    unbiased: int
    auc: float
    first: int
    named: int
    inside: tuple[int, int]  # marks found whose center was right, of those with a place
    overlap: float  # median intersection over union of box and mark
    false_alarms: int

    def text(self) -> str:
        """As a Markdown table."""
        rows = [
            ["biased federations", f"{self.biased}, of which {self.judged} can be judged"],
            ["AUC per site and class", f"{self.auc:.3f}"],
            ["origin (site and class) first", _format_share(self.first, self.judged)],
            ["verdict `biased` for the origin", _format_share(self.named, self.judged)],
            ["center of the place inside the mark", _format_share(*self.inside)],
            ["median overlap of box and mark", f"{self.overlap:.2f}"],
        ]
        rows = rows if self.biased else []
        if self.unbiased:
            share = _format_share(self.false_alarms, self.unbiased)
            rows.append(["unbiased federations with an alarm", share])
        return to_markdown(["", ""], rows)


def _format_share(hits: int, count: int) -> str:
    low, high = exact_interval(hits, count)
    return f"{hits} of {count} (95 % interval {low:.3f} to {high:.3f})"


def summarize(cases: Sequence[Case]) -> Trial:
    """AUC over sites and classes, origin first, the right place, false alarms."""
    good: list[float] = []
    bad: list[float] = []
    first = named = alarms = judged = right = placed = 0
    overlaps: list[float] = []
    for case in cases:
        scores = {(pair.site, pair.label): pair for pair in case.scores}
        if case.truth is None:
            alarms += any(pair.verdict == "biased" for pair in case.scores)
        elif case.truth in scores:
            judged += 1
            bad.append(scores[case.truth].score)
            first += max(scores, key=lambda key: scores[key].score) == case.truth
            is_named = scores[case.truth].verdict == "biased"
            named += is_named
            if is_named and case.hit is not None and case.overlap is not None:
                placed += 1
                right += case.hit >= 0.5
                overlaps.append(case.overlap)
        good += [pair.score for key, pair in scores.items() if key != case.truth]
    return Trial(
        biased=sum(case.truth is not None for case in cases),
        judged=judged,
        unbiased=sum(case.truth is None for case in cases),
        auc=auc(bad, good),
        first=first,
        named=named,
        inside=(right, placed),
        overlap=float(np.median(overlaps)) if overlaps else float("nan"),
        false_alarms=alarms,
    )


def summarize_by_kind(cases: Sequence[Case]) -> str:
    """Where it works and where it fails: a row for each kind of mark and way to deal images."""
    rows = []
    for name in dict.fromkeys(case.mark for case in cases if case.truth is not None):
        for way in dict.fromkeys(case.partition for case in cases):
            alike = [case for case in cases if case.mark == name and case.partition == way]
            if alike:
                trial = summarize(alike)
                inside = f"{trial.inside[0]}/{trial.inside[1]}" if trial.inside[1] else "-"
                judged = f"{trial.judged}/{trial.biased}"
                rows.append([name, way, judged, str(trial.first), str(trial.named), inside])
    return to_markdown(["mark", "images", "judged", "first", "`biased`", "center"], rows)


@TABLES.register("audit")
def make_audit_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The audit on federations whose bias is known; nothing is trained."""
    cases = run_cases(make_cells(grid), folder, on_cell)
    trial = summarize(cases)
    parts = [trial.text()]
    if trial.biased:
        parts.append(summarize_by_kind(cases))
    p_values = collect_unbiased_p_values(cases)
    if p_values:
        picture = folder / "figures" / "p-values.png"
        draw_p_values(p_values, picture)
        parts.append(f"wrote {picture}")
    return "\n\n".join(parts)
