"""The figures of the audit's claims: what was found, where it was sought, and false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.tables.audit_trial import Case, run_cases
from experiments.tables.audit_trial_figure import draw_p_values
from experiments.tables.markdown import to_markdown
from vitrail.audit.detection.null_distribution import NullDistribution, load_shipped_null
from vitrail.audit.finding import SIGNIFICANCE_LEVEL
from vitrail.config import Loaded
from vitrail.metrics.binomial import exact_interval
from vitrail.metrics.method_tests import holm
from vitrail.metrics.ranking import auc
from vitrail.sweep.cells import make_cells
from vitrail.sweep.tables import TABLES, OnCell


def collect_unbiased_scores(cases: Sequence[Case]) -> list[float]:
    """The score of every class of every site of the federations in which nothing was injected."""
    return [score for case in cases if case.truth is None for *_, score in case.scores]


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
    false_alarms: int

    def text(self) -> str:
        """As a Markdown table."""
        rows = [
            ["biased federations", f"{self.biased}, of which {self.judged} can be judged"],
            ["AUC per site and class", f"{self.auc:.3f}"],
            ["origin (site and class) first", _format_share(self.first, self.judged)],
            ["verdict `biased` for the origin", _format_share(self.named, self.judged)],
            ["center of the place inside the mark", _format_share(*self.inside)],
        ]
        rows = rows if self.biased else []
        if self.unbiased:
            share = _format_share(self.false_alarms, self.unbiased)
            rows.append(["unbiased federations with an alarm", share])
        return to_markdown(["", ""], rows)


def _format_share(hits: int, count: int) -> str:
    low, high = exact_interval(hits, count)
    return f"{hits} of {count} (95 % interval {low:.3f} to {high:.3f})"


def summarize(cases: Sequence[Case], null: NullDistribution) -> Trial:
    """AUC over sites and classes, origin first, the right place, false alarms.

    Where the biased site knows two classes only, the other one is told from the marked one by
    the mark just as well: a consequence, which is not counted.
    """
    good: list[float] = []
    bad: list[float] = []
    first = named = alarms = judged = right = placed = 0
    for case in cases:
        scores = {(site, label): score for site, label, score in case.scores}
        scores = {key: s for key, s in scores.items() if not _is_consequence(key, case)}
        p_values = holm([null.p_value(s) for s in scores.values()])
        sure = [key for key, p in zip(scores, p_values, strict=True) if p < SIGNIFICANCE_LEVEL]
        if case.truth is None:
            alarms += bool(sure)
        elif case.truth in scores:
            judged += 1
            bad.append(scores[case.truth])
            first += max(scores, key=lambda key: scores[key]) == case.truth
            named += case.truth in sure
            if case.truth in sure and case.hit is not None:
                placed += 1
                right += case.hit >= 0.5
        good += [score for key, score in scores.items() if key != case.truth]
    return Trial(
        biased=sum(case.truth is not None for case in cases),
        judged=judged,
        unbiased=sum(case.truth is None for case in cases),
        auc=auc(bad, good),
        first=first,
        named=named,
        inside=(right, placed),
        false_alarms=alarms,
    )


def summarize_by_kind(cases: Sequence[Case], null: NullDistribution) -> str:
    """Where it works and where it fails: a row for each kind of mark and way to deal images."""
    rows = []
    for name in dict.fromkeys(case.mark for case in cases if case.truth is not None):
        for way in dict.fromkeys(case.partition for case in cases):
            alike = [case for case in cases if case.mark == name and case.partition == way]
            if alike:
                trial = summarize(alike, null)
                inside = f"{trial.inside[0]}/{trial.inside[1]}" if trial.inside[1] else "-"
                judged = f"{trial.judged}/{trial.biased}"
                rows.append([name, way, judged, str(trial.first), str(trial.named), inside])
    return to_markdown(["mark", "images", "judged", "first", "`biased`", "center"], rows)


@TABLES.register("audit")
def make_audit_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The audit on federations whose bias is known; nothing is trained."""
    cases, null = run_cases(make_cells(grid), folder, on_cell), load_shipped_null()
    trial = summarize(cases, null)
    parts = [trial.text()]
    if trial.biased:
        parts.append(summarize_by_kind(cases, null))
    scores = collect_unbiased_scores(cases)
    if scores:
        picture = folder / "figures" / "p-values.png"
        draw_p_values([null.p_value(score) for score in scores], picture)
        parts.append(f"wrote {picture}")
    return "\n\n".join(parts)


def _is_consequence(key: tuple[str, str], case: Case) -> bool:
    """Whether a class stands out only because it is all that the marked class is compared with."""
    if case.truth is None or key == case.truth or key[0] != case.truth[0]:
        return False
    return sum(site == key[0] for site, _, _ in case.scores) == 2
