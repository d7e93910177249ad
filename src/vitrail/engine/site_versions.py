"""Which state each site builds on, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vitrail.engine.tasks import Task
from vitrail.secure_aggregation.steps import MaskRequest


@dataclass
class Versions:
    """Which state each site builds on: its last accepted round, now and at the last checkpoint."""

    accepted: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    holds: dict[str, list[str]] = field(default_factory=dict)  # assets by site, as digests

    def make_task(
        self,
        site: str,
        round_: int,
        sites: int,
        assets: Mapping[str, str] | None = None,
        masks: MaskRequest | None = None,
        **flags: bool,
    ) -> Task:
        """The task of a site, with the state to build on and the oldest one still needed."""
        base, floor = self.accepted.get(site, 0), self.durable.get(site, 0)
        wanted = dict(assets or {})
        lacks = tuple(sorted(set(wanted.values()) - set(self.holds.get(site, ()))))
        return Task(
            site, round_, sites, base, floor, assets=wanted, lacks=lacks, masks=masks, **flags
        )

    def record_delivery(self, task: Task) -> None:
        """Remember that a site holds what was brought to it."""
        if task.lacks:
            self.holds[task.site] = sorted({*self.holds.get(task.site, ()), *task.lacks})
