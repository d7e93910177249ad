"""Asking the sites of a round, and adding up what passes the guard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vitrail.aggregate.sums import Aggregator
from vitrail.engine.plan import Plan, StagePlan
from vitrail.engine.round_report import RoundReport
from vitrail.engine.sampling import Draw
from vitrail.engine.site_versions import Versions
from vitrail.engine.storage.transcript import Transcript
from vitrail.engine.tasks import MissingReply, Reply, RoundMessage, Task
from vitrail.engine.workers.pool import Pool
from vitrail.local.session import Context
from vitrail.methods.base.server import Server
from vitrail.release.update import Update
from vitrail.secure_aggregation.cohort import Cohort
from vitrail.secure_aggregation.secure_sum import ALL_SITES, MaskedSum, SecureRound

Total = Aggregator | MaskedSum


@dataclass
class Collector:
    """The sites of one round, what they are sent, and what has come of it so far."""

    server: Server
    plan: Plan
    pool: Pool
    versions: Versions
    ctx: Context
    down: RoundMessage
    weights: dict[str, float]
    report: RoundReport
    transcript: Transcript | None = None
    kept: set[str] = field(default_factory=set)  # sites that saved a state
    refused: dict[str, str] = field(default_factory=dict)
    largest_change: float | None = None  # of a site's update, where a run bounds it

    def collect(self, draw: Draw) -> Total:
        """Ask the sites that were drawn; whoever does not answer is left out of the sum."""
        if self._stage.masked is not None:
            return self._collect_masked(draw)
        whole = self.plan.method.needs == "all"
        options = self.plan.config.aggregate
        total = Aggregator(
            self._stage.schema,
            self.down.tensors,
            options,
            whole,
            self.ctx.key,
            self.largest_change,
        )
        self._ask(draw.sites, total)
        return total

    def _collect_masked(self, draw: Draw) -> MaskedSum:
        secure = SecureRound(
            self.ctx.round,
            self._stage.schema,
            self.down.tensors,
            self.plan.config.aggregate,
            dict(self.versions.keys),
            self.weights,
        )
        total, problem = secure.add_up(draw.sites, tuple(draw.dropped), self._ask)
        if problem is not None:
            self.refused[ALL_SITES] = problem
        else:
            self._record_sum(total)
        return total

    @property
    def _stage(self) -> StagePlan:
        return self.plan.stage_at(self.ctx.round)

    def _ask(self, sites: Sequence[str], total: Total, cohort: Cohort | None = None) -> list[str]:
        """One message to each site; returns those whose update counts."""
        round_, count = self.ctx.round, len(self.server.roster)
        assets = self.server.list_asset_digests()
        due = (round_ - 1) % self.plan.config.run.evaluate_every == 0
        due = due and self.plan.method.sends_global
        tasks = [
            self.versions.make_task(site, round_, count, assets, cohort, evaluate=due)
            for site in sites
        ]
        self.report.updates, self.kept, counted = [], set(), []
        for task, reply in zip(tasks, self.pool.turns(tasks, self.down), strict=True):
            if isinstance(reply, MissingReply):
                self.report.dropped[task.site] = reply.reason
            elif self._take(task, reply, total):
                counted.append(task.site)
        return counted

    def _take(self, task: Task, reply: Reply, total: Total) -> bool:
        """Whether an answer passes the guard and is added up."""
        update, weight = reply.update, self.weights[task.site]
        if reply.key is not None:
            self.versions.announce(task.site, reply.key, self.ctx.round)
        expected = (task.site, self.ctx.round, self.ctx.stage)
        facts = self.server.roster[task.site]
        limits = {"examples": facts["examples"], **self.plan.method.limits(facts, self.ctx)}
        reason = reply.withheld or total.offer(update, weight, expected, limits)
        sizes = {asset.digest: asset.bytes for asset in self.server.assets.values()}
        extra = sum(sizes[name] for name in task.lacks)
        self.report.count(task.site, update.bytes, self._stage.schema.bytes_down + extra)
        self.versions.record_delivery(task)
        if self.transcript is not None and task.cohort is None:
            self.transcript.write_received(task, update, weight, reason)
        if reason is not None:
            self.refused[task.site] = reason
            return False
        self.report.updates.append(_without_tensors(update))
        if reply.kept:
            self.kept.add(task.site)
        return True

    def _record_sum(self, total: MaskedSum) -> None:
        """What the server has after a secure sum: its result, and nothing of any one site."""
        if self.transcript is None:
            return
        sums = total.finish()
        if not sums.accepted:
            return
        run, roster = self.plan.config.run, self.server.roster
        most = max(roster[site]["examples"] for site in sums.accepted)
        counts = {
            "examples": sum(roster[site]["examples"] for site in sums.accepted),
            "steps": run.local_epochs * math.ceil(most / run.batch_size),
        }
        names = {field.name for field in total.schema.up}
        tensors = {name: tensor for name, tensor in sums.tensors.items() if name in names}
        update = Update(ALL_SITES, self.ctx.round, self.ctx.stage, tensors, counts)
        weight = sum(self.weights[site] for site in sums.accepted)
        self.transcript.write_received(
            Task(ALL_SITES, self.ctx.round, len(roster)), update, weight, None
        )


def _without_tensors(update: Update) -> Update:
    """What the figures need of an update."""
    return Update(update.site, update.round, update.stage, {}, update.counts, update.metrics)
