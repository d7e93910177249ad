"""Several attacks under the same conditions: draws, truth, budget, voice, folder of states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from vitrail.attack.attack import Attack
from vitrail.attack.budget import Budget, Tell, tell_nobody
from vitrail.attack.findings import Findings
from vitrail.attack.ground_truth import GroundTruth
from vitrail.attack.job import Job, LabelKnowledge
from vitrail.attack.view import View
from vitrail.rng import Key


@dataclass(frozen=True)
class Trial:
    """What all attacks of a comparison have in common; `tell` gives a voice to each by its name."""

    key: Key
    truth: GroundTruth
    budget: Budget = field(default_factory=Budget)
    tell: Callable[[str], Tell] = field(default=lambda _: tell_nobody)
    state: Path | None = None
    labels: LabelKnowledge = "both"

    def run(self, attack: Attack, view: View) -> Findings:
        """One attack on what a server has."""
        job = Job(
            self.budget,
            self.key.at(attack.name),
            partial(self.tell, attack.name),
            truth=self.truth,
            labels=self.labels,
            folder=self.state,
        )
        return attack.run(view, job)
