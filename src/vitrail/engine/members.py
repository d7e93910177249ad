"""Who takes part in a run: sites simulated here, or at the other end of a wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vitrail.data.duplicates import describe_duplicates
from vitrail.engine.federation import SERVER, Federation
from vitrail.engine.hostile_pool import HostilePool
from vitrail.engine.plan import Plan
from vitrail.engine.storage.feature_cache import ensure_feature_cache
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.workers.make_pool import make_pool
from vitrail.engine.workers.pool import Pool
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.models.network import Network
from vitrail.release.door import Door
from vitrail.release.patient_budgets import plan_patient_budgets
from vitrail.rng import Key, derive_site_key

Ints = npt.NDArray[np.int64]
Facts = dict[str, dict[str, float]]


class Members(Protocol):
    """The sites of a run as the engine sees them: what they tell, and who plays their turns."""

    @property
    def image_size(self) -> int:
        """Pixels of a side of everybody's images."""
        ...

    @property
    def public(self) -> bool:
        """Whether the images may be shown to anybody."""
        ...

    @property
    def bits(self) -> int | None:
        """That deep images were read with, where the server knows it and there are any."""
        ...

    def enroll(self, plan: Plan, folder: RunFolder) -> Facts:
        """What each site tells once, before the first round, through its own door."""
        ...

    def welcome(self, plan: Plan, folder: RunFolder, roster: Facts, round_: int) -> Facts:
        """What those tell who join before a round, beside the sites that take part already."""
        ...

    def secret(self, plan: Plan, folder: RunFolder) -> Key:
        """The root of what the server draws and no site may know."""
        ...

    def counts(self) -> dict[str, object] | None:
        """Images by site and class, where the server may know them."""
        ...

    def digest(self) -> str:
        """What must be the same when the run is resumed."""
        ...

    def remarks(self) -> tuple[str, ...]:
        """Lines for the log of a new run."""
        ...

    def held_out(self) -> tuple[Ints, Ints]:
        """Rows and labels of the server's own test images; none is usual."""
        ...

    def pool(self, plan: Plan, network: Network, folder: RunFolder) -> Pool:
        """Who plays the turns."""
        ...

    def prepare(
        self, plan: Plan, network: Network, pool: Pool, progress: Callable[[int, int], None]
    ) -> None:
        """Work to be done once before the first turn."""
        ...


@dataclass(frozen=True)
class SimulatedSites:
    """All sites in this process or in its workers; `workers` overrules the configuration."""

    federation: Federation
    crew: WorkerProcesses
    workers: int | None = None

    @property
    def image_size(self) -> int:
        """Pixels of a side."""
        return int(self.federation.images.images.shape[1])

    @property
    def public(self) -> bool:
        """Whether the images may be shown to anybody: the embedded ones."""
        return self.federation.images.public

    @property
    def bits(self) -> int | None:
        """That deep images were read with."""
        return self.federation.images.bits

    def enroll(self, plan: Plan, folder: RunFolder) -> Facts:
        """Each site's facts, through its own door."""
        found, patients = {}, self.federation.count_patients()
        for site, rows in self.federation.sites.items():
            facts = plan.method.facts(self.federation.images.labels[rows.train], len(plan.classes))
            names = plan.config.release.defenses
            door = Door(site, SiteFolder(folder.path, site).ledger(), plan.defenses(), names)
            found[site] = door.enroll(facts, patients.get(site))
        if patients:
            worst = max(patients, key=lambda site: patients[site].largest)
            examples = len(self.federation.sites[worst].train)
            for budget in plan_patient_budgets(worst, examples, patients[worst], plan.defenses()):
                folder.log(f"no guarantee for a patient: {budget.sentence()}")
        return found

    def welcome(self, plan: Plan, folder: RunFolder, roster: Facts, round_: int) -> Facts:
        """All are there from the start."""
        del plan, folder, roster, round_
        return {}

    def secret(self, plan: Plan, folder: RunFolder) -> Key:
        """From the seed, as all secrets of a simulation."""
        del folder
        return derive_site_key(plan.config.run.seed, SERVER)

    def counts(self) -> dict[str, object]:
        """What the partition picture shows."""
        return self.federation.counts()

    def digest(self) -> str:
        """The images and who holds which."""
        return self.federation.digest()

    def remarks(self) -> tuple[str, ...]:
        """What was left out, and what deep images were taken for."""
        lines = []
        if self.federation.skipped:
            lines.append(f"{self.federation.skipped} files were left out (data.broken)")
        lines += describe_duplicates(self.federation.images, self.federation.left_out)
        if self.bits is not None:
            lines.append(f"images of more than 8 bits were read as {self.bits} bits (data.bits)")
        return tuple(lines)

    def held_out(self) -> tuple[Ints, Ints]:
        """The rows of no site."""
        rows = self.federation.server_test
        return rows, self.federation.images.labels[rows]

    def pool(self, plan: Plan, network: Network, folder: RunFolder) -> Pool:
        """This process, or as many workers as asked for."""
        count = self.workers or plan.config.run.workers
        pool = make_pool(plan, network, self.federation, folder, count, self.crew)
        if plan.config.hostile and not plan.method.pooled:
            return HostilePool(pool, plan, network, self.federation)
        return pool

    def prepare(
        self, plan: Plan, network: Network, pool: Pool, progress: Callable[[int, int], None]
    ) -> None:
        """The features of frozen stages, computed once."""
        if plan.config.model.cache_features and network.cut:
            pool.use_features(ensure_feature_cache(plan, network, self.federation, pool, progress))
