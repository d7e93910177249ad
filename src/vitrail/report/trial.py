"""How well the audit does on federations whose bias is known: the table behind its claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.audit.gather import audit_run
from vitrail.audit.null import Null
from vitrail.engine.loaded import Run
from vitrail.files import write_json

FILE = "audit.json"


@dataclass(frozen=True)
class Case:
    """One federation: what was injected, and what the audit said about every site and class."""

    run: str
    truth: tuple[str, str] | None  # site and class
    kind: str  # of the bias; "none"
    found: dict[str, Any]

    @property
    def scores(self) -> dict[tuple[str, str], float]:
        """The score of every site and class."""
        return {
            (site["site"], item["class"]): item["score"]
            for site in self.found["sites"]
            for item in site["classes"]
        }

    @property
    def p_values(self) -> list[float]:
        """Uncorrected p-values of all classes of all sites."""
        return [item["raw_p"] for site in self.found["sites"] for item in site["classes"]]

    @property
    def alarm(self) -> bool:
        """Whether any verdict is `biased`."""
        return any(c["verdict"] == "biased" for s in self.found["sites"] for c in s["classes"])


def cases(
    paths: Sequence[Path], null: Null | None = None, tell: Callable[[str], None] | None = None
) -> list[Case]:
    """Audit every run that has no stored audit yet, and read all of them."""
    found = []
    for path in paths:
        file = path / FILE
        if not file.exists():
            if tell is not None:
                tell(path.name)
            write_json(file, audit_run(Run(path), null=null).to_json())
        found.append(_case(Run(path), json.loads(file.read_text(encoding="utf-8"))))
    return found


def _case(run: Run, found: dict[str, Any]) -> Case:
    if not run.config.bias:
        return Case(run.path.name, None, "none", found)
    bias = run.config.bias[0]
    site, label = bias.sites[0], bias.classes[0]
    name = site if isinstance(site, str) else run.sites[site]
    return Case(
        run.path.name,
        (name, label if isinstance(label, str) else run.classes[label]),
        bias.kind,
        found,
    )


@dataclass(frozen=True)
class Trial:
    """The figures of the claims."""

    biased: int
    unbiased: int
    auc: float
    first: int
    found: int
    false_alarms: int

    def text(self) -> str:
        """As lines for a terminal and the docs."""
        low, high = exact_interval(self.false_alarms, self.unbiased)
        at, to = exact_interval(self.first, self.biased)
        return "\n".join(
            [
                f"{self.biased} biased and {self.unbiased} unbiased federations",
                f"AUC per site and class            {self.auc:.3f}",
                f"origin (site and class) first     {self.first}/{self.biased} "
                f"(95 % interval {at:.2f} to {to:.2f})",
                f"verdict `biased` for the origin   {self.found}/{self.biased}",
                f"unbiased federations with alarm   {self.false_alarms}/{self.unbiased} "
                f"(95 % interval {low:.2f} to {high:.2f})",
            ]
        )


def summarize(found: Sequence[Case], two_classes: bool = False) -> Trial:
    """AUC over sites and classes, origin first, false alarms.

    With two classes the other class of the biased site is a consequence and is not counted.
    """
    good: list[float] = []
    bad: list[float] = []
    first = named = 0
    for case in found:
        scores = case.scores
        if case.truth is not None and case.truth in scores:
            bad.append(scores[case.truth])
            first += max(scores, key=lambda key: scores[key]) == case.truth
            named += case.alarm and case.found["origin"] == case.truth[0]
        for key, score in scores.items():
            consequence = two_classes and case.truth is not None and key[0] == case.truth[0]
            if key != case.truth and not consequence:
                good.append(score)
    biased = sum(case.truth is not None for case in found)
    clean = [case for case in found if case.truth is None]
    area = auc(np.array(bad), np.array(good))
    return Trial(biased, len(clean), area, first, named, sum(case.alarm for case in clean))


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
