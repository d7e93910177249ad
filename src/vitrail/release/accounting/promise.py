"""What a formal mechanism promises for one release, and what all releases so far add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitrail.errors import ConfigError
from vitrail.release.accounting.accountant import AccountantName, Event, compute_epsilon

NO_GUARANTEE = "empirical: no formal guarantee"
NOTHING = "nothing left"
SERVER = "the server and everybody after it"
OUTSIDE = "whoever sees the global models; the server is trusted"
DISTRIBUTED = "the server with {colluding} of the sites in a sum, and everybody after it"
_SLACK = 1e-6  # of a target, for the last bit of a calibrated noise


def hides_from_server(against: str) -> bool:
    """Whether the server is among those who may look: alone, or with some of the sites."""
    return against == SERVER or against.startswith(DISTRIBUTED.partition("{")[0])


def check_delta(delta: float, examples: Mapping[str, int], where: str) -> None:
    """Refuse a delta of at least 1/n: giving away one of a site's n images would be allowed."""
    for site, count in examples.items():
        if count and delta >= 1 / count:
            raise ConfigError(
                f"delta {delta:g} is not below 1/{count}, and site {site!r} has {count} "
                "images: publishing one of them would be allowed",
                where=where,
                hint=f"Choose one below {1 / (10 * count):.1g}.",
            )


@dataclass(frozen=True)
class Promise:
    """The cost of one release under one mechanism.

    `unit` is what neighbors differ in, `against` who may look, `target` what the whole run may
    cost; `covers` names the tensors that the proof speaks about, None for all of them.
    """

    mechanism: str
    unit: str
    against: str
    delta: float
    target: float
    events: tuple[Event, ...]
    how: AccountantName = "pld"
    covers: frozenset[str] | None = None

    def uncovered(self, names: Iterable[str]) -> list[str]:
        """The tensors that leave without its protection."""
        return [] if self.covers is None else [n for n in names if n not in self.covers]

    def epsilon(self, before: Sequence[Event]) -> float:
        """What has been spent once this release is out."""
        return compute_epsilon((*before, *self.events), self.delta, self.how)

    def allows(self, spent: float) -> bool:
        """Whether that is within the target."""
        return spent <= self.target * (1 + _SLACK)

    def line(self, spent: float) -> dict[str, Any]:
        """As the ledger keeps it: this release's own events, and the sum so far."""
        return {
            "mechanism": self.mechanism,
            "unit": self.unit,
            "against": self.against,
            "delta": self.delta,
            "target": self.target if math.isfinite(self.target) else None,
            "accountant": self.how,
            "events": [[e.noise, e.rate, e.times] for e in self.events],
            "epsilon": spent if math.isfinite(spent) else None,
        }


def read_events(lines: Iterable[Mapping[str, Any]], mechanism: str) -> list[Event]:
    """Everything a mechanism has spent according to a ledger's lines."""
    return [
        Event(noise, rate, times)
        for line in lines
        for spend in line.get("spends", ())
        if spend["mechanism"] == mechanism
        for noise, rate, times in spend["events"]
    ]


def recount(spend: Mapping[str, Any], events: Iterable[Event]) -> float:
    """The epsilon of some events at the delta and with the accountant of a ledger's line."""
    return compute_epsilon(events, spend["delta"], spend["accountant"])


def describe_guarantee(spends: Sequence[Mapping[str, Any]]) -> str:
    """The guarantee of a release in words, from what its mechanisms have spent so far."""
    parts = []
    for spend in spends:
        value = "infinity" if spend["epsilon"] is None else f"{spend['epsilon']:.4g}"
        parts.append(
            f"(epsilon, delta) = ({value}, {spend['delta']:.1g}) for {spend['unit']}, "
            f"against {spend['against']}"
        )
    return f"formal: {'; '.join(parts)}" if parts else NO_GUARANTEE
