"""The figures of the audit's claims: what was found, where it was sought, and false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.audit.finding import LEVEL
from vitrail.audit.null import Null, holm, shipped
from vitrail.config import Loaded
from vitrail.engine.sweep import cells
from vitrail.report.tables import TABLES, OnCell, markdown
from vitrail.report.trial import Case, cases
from vitrail.report.trial_figure import p_value_picture


def unbiased_scores(found: Sequence[Case]) -> list[float]:
    """The score of every class of every site of the federations in which nothing was injected."""
    return [score for item in found if item.truth is None for *_, score in item.scores]


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
            ["origin (site and class) first", _share(self.first, self.judged)],
            ["verdict `biased` for the origin", _share(self.named, self.judged)],
            ["center of the place inside the mark", _share(*self.inside)],
        ]
        rows = rows if self.biased else []
        if self.unbiased:
            told = _share(self.false_alarms, self.unbiased)
            rows.append(["unbiased federations with an alarm", told])
        return markdown(["", ""], rows)


def _share(hits: int, count: int) -> str:
    low, high = exact_interval(hits, count)
    return f"{hits} of {count} (95 % interval {low:.3f} to {high:.3f})"


def summarize(found: Sequence[Case], null: Null) -> Trial:
    """AUC over sites and classes, origin first, the right place, false alarms.

    Where the biased site knows two classes only, the other one is told from the marked one by
    the mark just as well: a consequence, which is not counted.
    """
    good: list[float] = []
    bad: list[float] = []
    first = named = alarms = judged = right = placed = 0
    for item in found:
        scores = {(site, label): score for site, label, score in item.scores}
        scores = {key: s for key, s in scores.items() if not _consequence(key, item)}
        p_values = holm([null.p_value(s) for s in scores.values()])
        sure = [key for key, p in zip(scores, p_values, strict=True) if p < LEVEL]
        if item.truth is None:
            alarms += bool(sure)
        elif item.truth in scores:
            judged += 1
            bad.append(scores[item.truth])
            first += max(scores, key=lambda key: scores[key]) == item.truth
            named += item.truth in sure
            if item.truth in sure and item.hit is not None:
                placed += 1
                right += item.hit >= 0.5
        good += [score for key, score in scores.items() if key != item.truth]
    return Trial(
        biased=sum(item.truth is not None for item in found),
        judged=judged,
        unbiased=sum(item.truth is None for item in found),
        auc=auc(np.array(bad), np.array(good)),
        first=first,
        named=named,
        inside=(right, placed),
        false_alarms=alarms,
    )


def by_kind(found: Sequence[Case], null: Null) -> str:
    """Where it works and where it fails: a row for each kind of mark and way to deal images."""
    rows = []
    for name in dict.fromkeys(item.mark for item in found if item.truth is not None):
        for way in dict.fromkeys(item.partition for item in found):
            some = [item for item in found if item.mark == name and item.partition == way]
            if some:
                one = summarize(some, null)
                inside = f"{one.inside[0]}/{one.inside[1]}" if one.inside[1] else "-"
                judged = f"{one.judged}/{one.biased}"
                rows.append([name, way, judged, str(one.first), str(one.named), inside])
    return markdown(["mark", "images", "judged", "first", "`biased`", "center"], rows)


@TABLES.register("audit")
def audit_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The audit on federations whose bias is known; nothing is trained."""
    found, null = cases(cells(grid), folder, on_cell), shipped()
    trial = summarize(found, null)
    told = [trial.text()]
    if trial.biased:
        told.append(by_kind(found, null))
    scores = unbiased_scores(found)
    if scores:
        picture = folder / "figures" / "p-values.png"
        p_value_picture([null.p_value(score) for score in scores], picture)
        told.append(f"wrote {picture}")
    return "\n\n".join(told)


def _consequence(key: tuple[str, str], item: Case) -> bool:
    """Whether a class stands out only because it is all that the marked class is compared with."""
    if item.truth is None or key == item.truth or key[0] != item.truth[0]:
        return False
    return sum(site == key[0] for site, _, _ in item.scores) == 2


def auc(positive: npt.NDArray[np.float64], negative: npt.NDArray[np.float64]) -> float:
    """The chance that a positive scores higher than a negative, ties counting half."""
    if not len(positive) or not len(negative):
        return float("nan")
    above = (positive[:, None] > negative).mean()
    ties = (positive[:, None] == negative).mean()
    return float(above + ties / 2)


def exact_interval(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval for a share."""
    from scipy.stats import beta  # slow to import, seldom needed

    if count == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, count - hits + 1))
    high = 1.0 if hits == count else float(beta.ppf(1 - tail, hits + 1, count - hits))
    return low, high
