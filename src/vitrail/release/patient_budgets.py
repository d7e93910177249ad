"""A guarantee for one image is not one for a patient: what it is worth for all images of one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitrail.data.patients import PatientCount
from vitrail.release.accounting.group_privacy import compute_group_epsilon
from vitrail.release.accounting.promise import read_events
from vitrail.release.defenses.defense import Defense
from vitrail.release.defenses.private import PrivateDefense

Line = Mapping[str, Any]


@dataclass(frozen=True)
class PatientBudget:
    """What a mechanism that protects one image is worth for `images` of one patient."""

    site: str
    mechanism: str
    images: int
    epsilon: float
    delta: float
    planned: bool = False  # for a whole run that is still to come

    def sentence(self) -> str:
        """What to know before calling it a guarantee for patients."""
        value = f"{self.epsilon:.4g}" if math.isfinite(self.epsilon) else "infinity"
        when = "over the whole run " if self.planned else ""
        return (
            f"{self.mechanism} protects one image, and a patient of {self.site} has "
            f"{self.images} images: for all of them together epsilon is {when}{value} at delta "
            f"{self.delta:.1g} (accountant with up to {self.images} images in a step)"
        )


def list_patient_budgets(site: str, lines: Sequence[Line]) -> list[PatientBudget]:
    """What a site's ledger comes to for its largest patient; nothing where images are patients."""
    images = find_largest_patient(lines)
    spends = {s["mechanism"]: s for line in lines for s in line.get("spends", ())}
    if images < 2:
        return []
    return [
        PatientBudget(
            site,
            name,
            images,
            compute_group_epsilon(read_events(lines, name), images, spend["delta"]),
            spend["delta"],
        )
        for name, spend in spends.items()
        if is_one_image(str(spend["unit"]))
    ]


def list_worst_budgets(ledgers: Mapping[str, Sequence[Line]]) -> list[PatientBudget]:
    """The budgets of the one site, of all with a ledger, that has the patient of most images."""
    largest = {site: find_largest_patient(lines) for site, lines in ledgers.items()}
    if not largest:
        return []
    worst = max(largest, key=largest.__getitem__)
    return list_patient_budgets(worst, ledgers[worst])


def plan_patient_budgets(
    site: str, examples: int, patients: PatientCount | None, defenses: Iterable[Defense]
) -> list[PatientBudget]:
    """The same before the first round, for what the whole run may spend."""
    if patients is None or patients.largest < 2:
        return []
    budgets = []
    for defense in defenses:
        if isinstance(defense, PrivateDefense) and is_one_image(defense.protects()):
            epsilon = compute_group_epsilon(
                defense.plan_noise(site, examples), patients.largest, defense.options.delta
            )
            delta = defense.options.delta
            budget = PatientBudget(site, defense.name, patients.largest, epsilon, delta, True)
            budgets.append(budget)
    return budgets


def find_largest_patient(lines: Iterable[Line]) -> int:
    """The images of a site's largest patient, as its ledger says; 0 where patients are unknown."""
    sizes = [int(line["largest"]) for line in lines if line.get("kind") == "patients"]
    return max(sizes, default=0)


def is_one_image(unit: str) -> bool:
    """Whether a guarantee is for one image."""
    return unit.startswith("one image")
