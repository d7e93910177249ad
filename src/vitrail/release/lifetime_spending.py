"""What all runs together have spent on an image: one neighbor relation, one delta.

Neighbors differ in one image, or in all images of one patient where patients are known, that are
there or blank. What a run proved under another relation is converted, never mixed: a release for a
whole site, which compares a site with one that sends nothing, bounds the change of its images by
twice the clip, so it counts with half its noise; one image replaced by any other covers a blank one
as it is; a release for one image counts for so many as the patient has in that run. A release
without a proof, or one that trusts the server, leaves no bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitrail.grid_noise import reserve_delta
from vitrail.release.accounting.accountant import Event, compute_epsilon
from vitrail.release.accounting.group_privacy import compute_mixed_epsilon
from vitrail.release.accounting.promise import NO_GUARANTEE, NOTHING, OUTSIDE
from vitrail.release.defenses.defense import Defense
from vitrail.release.defenses.private import PrivateDefense
from vitrail.release.defenses.subspace_dp import CLIPPED_SITE
from vitrail.release.patient_budgets import is_one_image

Line = Mapping[str, Any]
SITE_UNIT = "a whole site"


@dataclass(frozen=True)
class Spending:
    """Gaussian events for one image that is there or blank, those for `whole` patients or sites,
    those for `groups` of so many images, and pure or approximate epsilons of other mechanisms
    beside them; `bounded` is False after a release without a proof."""

    events: tuple[Event, ...] = ()
    others: tuple[tuple[float, float], ...] = ()  # (epsilon, delta)
    bounded: bool = True
    whole: tuple[Event, ...] = ()
    groups: tuple[tuple[int, Event], ...] = ()

    def join(self, other: Spending) -> Spending:
        """Both together."""
        return Spending(
            (*self.events, *other.events),
            (*self.others, *other.others),
            self.bounded and other.bounded,
            (*self.whole, *other.whole),
            (*self.groups, *other.groups),
        )

    def leave_out(self, earlier: Spending) -> Spending:
        """What came since: ledgers only grow, so what was there earlier comes first."""
        return Spending(
            self.events[len(earlier.events) :],
            self.others[len(earlier.others) :],
            self.bounded,
            self.whole[len(earlier.whole) :],
        )

    def take_group(self, size: int) -> Spending:
        """The same for `size` images together, as a patient has them in one run."""
        if size < 2:
            return self
        others = tuple((size * e, _scale_delta(size, e, d)) for e, d in self.others)
        groups = tuple((size, event) for event in self.events)
        return replace(self, events=(), others=others, groups=(*self.groups, *groups))

    def compute_epsilon(self, delta: float) -> float:
        """What it comes to at `delta`: Gaussian events by the accountant, the others added."""
        rest = delta - math.fsum(d for _, d in self.others)
        if not self.bounded or rest <= 0:
            return math.inf
        plain = (*self.events, *self.whole)
        if not self.groups:
            gaussian = compute_epsilon(plain, rest)
        else:
            mixed: dict[int, list[Event]] = {1: list(plain)}
            for size, event in self.groups:
                mixed.setdefault(size, []).append(event)
            gaussian = compute_mixed_epsilon(mixed, reserve_delta(rest))
        return gaussian + math.fsum(e for e, _ in self.others)

    def to_json(self) -> dict[str, Any]:
        """As the lifetime ledger keeps it."""
        events = [[e.noise, e.rate, e.times] for e in self.events]
        whole = [[e.noise, e.rate, e.times] for e in self.whole]
        spent = {"events": events, "others": list(self.others), "bounded": self.bounded}
        return {**spent, "whole": whole} if whole else spent

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Spending:
        """From the lifetime ledger."""
        return Spending(
            tuple(Event(*event) for event in raw["events"]),
            tuple((e, d) for e, d in raw["others"]),
            bool(raw["bounded"]),
            tuple(Event(*event) for event in raw.get("whole", ())),
        )


def _scale_delta(size: int, epsilon: float, delta: float) -> float:
    """What a delta becomes for a group (Dwork and Roth 2014, theorem 2.2)."""
    power = (size - 1) * epsilon
    return min(1.0, size * math.exp(min(power, 700.0)) * delta) if delta else 0.0


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
    total = Spending()
    for defense in formal:
        events = defense.plan_noise(site, count)
        total = total.join(_sort_events(events, defense.protects(), defense.name))
    return total


def _sort_events(events: Iterable[Event], unit: str, mechanism: str) -> Spending:
    """Events of one mechanism, by what they protect."""
    converted = tuple(convert_event(event, unit, mechanism) for event in events)
    return Spending(converted) if is_one_image(unit) else Spending(whole=converted)


def read_spending(lines: Iterable[Line]) -> Spending:
    """What the lines of a run's ledger have spent."""
    total = Spending()
    for line in lines:
        guarantee = str(line.get("guarantee", NOTHING))
        for spend in line.get("spends", ()):
            events = [Event(*event) for event in spend["events"]]
            spent = _sort_events(events, str(spend["unit"]), str(spend["mechanism"]))
            total = total.join(replace(spent, bounded=spend["against"] != OUTSIDE))
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
