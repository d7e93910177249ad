"""Which state each site builds on, what it holds, and which key it adds up with next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vitrail.engine.tasks import Task
from vitrail.secure_aggregation.cohort import Cohort, PublicKey


@dataclass
class Versions:
    """Which state each site builds on: its last accepted round, now and at the last checkpoint."""

    accepted: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    holds: dict[str, list[str]] = field(default_factory=dict)  # assets by site, as digests
    keys: dict[str, PublicKey] = field(default_factory=dict)  # for the next secure sum

    def make_task(
        self,
        site: str,
        round_: int,
        sites: int,
        assets: Mapping[str, str] | None = None,
        cohort: Cohort | None = None,
        **flags: bool,
    ) -> Task:
        """The task of a site, with the state to build on and the oldest one still needed."""
        base, floor = self.accepted.get(site, 0), self.durable.get(site, 0)
        wanted = dict(assets or {})
        lacks = tuple(sorted(set(wanted.values()) - set(self.holds.get(site, ()))))
        return Task(
            site, round_, sites, base, floor, assets=wanted, lacks=lacks, cohort=cohort, **flags
        )

    def record_delivery(self, task: Task) -> None:
        """Remember that a site holds what was brought to it."""
        if task.lacks:
            self.holds[task.site] = sorted({*self.holds.get(task.site, ()), *task.lacks})

    def announce(self, site: str, key: PublicKey, round_: int) -> None:
        """Take a site's next key. One that says another round, or is somebody else's, would void
        every round to come; the site goes on with the one it has."""
        taken = {other.public for name, other in self.keys.items() if name != site}
        if key.epoch == round_ and key.public not in taken:
            self.keys[site] = key
