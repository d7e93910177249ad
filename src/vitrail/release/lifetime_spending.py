"""What all runs together have spent on an image: one neighbor relation, one delta.

Neighbors differ in one image (one patient, where patients are known) that is there or blank. What a
run proved under another relation is converted, never mixed: a release for a whole site, which
compares a site with one that sends nothing, bounds the change of one image by twice the clip, so it
counts with half its noise; one image replaced by any other covers a blank one as it is. A release
without a proof, or one that trusts the server, leaves no bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitrail.release.accounting.accountant import Event, compute_epsilon
from vitrail.release.accounting.promise import NO_GUARANTEE, NOTHING, OUTSIDE
from vitrail.release.defenses.defense import Defense
from vitrail.release.defenses.private import PrivateDefense
from vitrail.release.defenses.subspace_dp import CLIPPED_SITE

Line = Mapping[str, Any]
SITE_UNIT = "a whole site"


@dataclass(frozen=True)
class Spending:
    """Gaussian events for one image that is there or blank, and pure or approximate epsilons of
    other mechanisms beside them; `bounded` is False after a release without a proof."""

    events: tuple[Event, ...] = ()
    others: tuple[tuple[float, float], ...] = ()  # (epsilon, delta)
    bounded: bool = True

    def join(self, other: Spending) -> Spending:
        """Both together."""
        return Spending(
            (*self.events, *other.events),
            (*self.others, *other.others),
            self.bounded and other.bounded,
        )

    def compute_epsilon(self, delta: float) -> float:
        """What it comes to at `delta`: Gaussian events by the accountant, the others added."""
        rest = delta - math.fsum(d for _, d in self.others)
        if not self.bounded or rest <= 0:
            return math.inf
        return compute_epsilon(self.events, rest) + math.fsum(e for e, _ in self.others)

    def to_json(self) -> dict[str, Any]:
        """As the lifetime ledger keeps it."""
        events = [[e.noise, e.rate, e.times] for e in self.events]
        return {"events": events, "others": list(self.others), "bounded": self.bounded}

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Spending:
        """From the lifetime ledger."""
        events = tuple(Event(*event) for event in raw["events"])
        return Spending(events, tuple((e, d) for e, d in raw["others"]), bool(raw["bounded"]))


def convert_event(event: Event, unit: str, mechanism: str) -> Event:
    """The same event for one image that is there or blank.

    Sites of `client-dp`, and of `subspace-dp` with a clip, are there or send back what they
    received; projectors of `subspace-dp` are bounded for any two sites.
    """
    halved = unit == CLIPPED_SITE or (unit == SITE_UNIT and mechanism != "subspace-dp")
    return replace(event, noise=event.noise / 2) if halved else event


def plan_spending(
    defenses: Iterable[Defense], kept: Sequence[str], site: str, count: int
) -> Spending:
    """The most that a run may spend at a site of `count` images; `kept` are the tensors that leave
    one by one beside the model, whose cost nobody knows beforehand."""
    formal = [d for d in defenses if isinstance(d, PrivateDefense)]
    if not formal or kept or any(d.against() == OUTSIDE for d in formal):
        return Spending(bounded=False)
    events = [
        convert_event(event, defense.protects(), defense.name)
        for defense in formal
        for event in defense.plan_noise(site, count)
    ]
    return Spending(tuple(events))


def read_spending(lines: Iterable[Line]) -> Spending:
    """What the lines of a run's ledger have spent."""
    total = Spending()
    for line in lines:
        guarantee = str(line.get("guarantee", NOTHING))
        for spend in line.get("spends", ()):
            events = tuple(
                convert_event(Event(*event), str(spend["unit"]), str(spend["mechanism"]))
                for event in spend["events"]
            )
            total = total.join(Spending(events, bounded=spend["against"] != OUTSIDE))
        if line.get("kind") == "repeat":
            continue  # what it sends again is counted
        if guarantee.startswith(NO_GUARANTEE) or "not covered" in guarantee:
            total = replace(total, bounded=False)
        elif guarantee.startswith("formal") and "spends" not in line:
            total = total.join(_read_remark(line))
    return total


def _read_remark(line: Line) -> Spending:
    """A part of a release with an epsilon of its own; a curve over distances is no bound."""
    if line.get("epsilon") is None:
        return Spending(bounded=False)
    return Spending(others=((float(line["epsilon"]), float(line.get("delta", 0.0))),))
