"""A run at a site: its plan, its network, its images, and what is written into its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.audit.audit_tables import tell_summaries
from vitrail.engine.federation import Federation
from vitrail.engine.plan import Plan
from vitrail.engine.resolve_config import fingerprint_config
from vitrail.engine.round_report import RoundReport
from vitrail.engine.site_turn import Host
from vitrail.engine.site_versions import Versions
from vitrail.engine.storage.checkpoint import Checkpoints, Identity
from vitrail.engine.storage.journal import COLUMNS, Journal
from vitrail.engine.storage.model_card import write_card
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.tasks import Reply, Task
from vitrail.flower.envelope import TurnRequest
from vitrail.flower.run_terms import has_local_reference, is_audited
from vitrail.methods.base.server import Server
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network
from vitrail.runs.opened_run import Run


@dataclass(frozen=True)
class SiteRun:
    """A run at the site `name`, ready to play: all that follows from its configuration."""

    name: str
    folder: RunFolder
    plan: Plan
    network: Network
    federation: Federation

    def count_images(self) -> int:
        """The training images of this site."""
        return len(self.federation.sites[self.name].train)

    def prepare_folder(self) -> None:
        """What a run folder needs before its first round."""
        images, names = self.federation.images, (self.name,)
        size, bits = int(images.images.shape[1]), images.bits
        write_card(self.folder, self.plan, names, size, public=False, bits=bits)
        Checkpoints(self.folder.server).save_frozen(self.network, self.plan)
        values = FlatModel(self.network).values.clone()
        self._save(values, Versions(), 0)

    def write_metrics(self, task: Task, reply: Reply, received: int, seconds: float) -> None:
        """The site's own metrics: of a message that comes twice, the last. One that comes after a
        later round was played changes nothing: whoever sends it would hide that round here."""
        if any(row["at"] > task.round for row in self.folder.lines()):
            return
        journal = Journal(self.folder, self.plan)
        self.folder.cut_back(task.round - 1)
        report = RoundReport(task.round, [reply.update], accepted=(task.site,))
        report.count(task.site, reply.update.bytes, received)
        if task.closing:
            journal.write_closing(report)
        else:
            journal.write_round(report, seconds)
        self.folder.write_parquet(COLUMNS)

    def close(
        self, host: Host, asked: TurnRequest, model: Mapping[str, Tensor]
    ) -> dict[str, dict[str, Any]]:
        """Keep the global model; train alone and tell what audits compare, where that is agreed."""
        values = host.start.clone()
        views = self.plan.layout.views(values)
        for name, tensor in model.items():
            views[name.removeprefix("model/")].copy_(tensor)
        task = asked.task
        versions = Versions({task.site: task.base} if task.base else {})
        self._save(values, versions, self.plan.config.run.rounds)
        Journal(self.folder, self.plan).write_finished()
        local = SiteFolder(self.folder.path, task.site).model_file("local")
        if has_local_reference(self.plan) and not local.exists():
            host.train_alone(task.site)
        if not asked.audit:
            return {}
        if not is_audited(self.plan):
            self.folder.log("a message asks for an audit's figures against the terms: none left")
            return {}
        tables = tell_summaries(Run(self.folder.path), self.federation, [task.site])
        return {"told": tables[task.site]}

    def _save(self, values: Tensor, versions: Versions, round_: int) -> None:
        stage = self.plan.stages[-1]
        server = Server(self.plan.layout, stage.shared, stage.arrives, values)
        identity = Identity(
            config=fingerprint_config(self.plan.config),
            data=self.federation.digest(),
            weights=self.plan.card.get("digest", ""),
        )
        Checkpoints(self.folder.server).save(server, versions, round_, identity)
