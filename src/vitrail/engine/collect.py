"""Asking the sites of a round, and adding up what passes the guard."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

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
from vitrail.secure_aggregation.secure_sum import ALL_SITES, MaskedSum
from vitrail.secure_aggregation.server_steps import SecureRound
from vitrail.secure_aggregation.steps import MaskRequest, StepAnswer, StepRequest

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
    trusted: Mapping[str, Tensor] | None = None  # what the server trained itself, where a rule asks
    liars: dict[str, str] = field(default_factory=dict)  # in the steps of a secure sum

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
            self.trusted,
        )
        self.ask(draw.sites, total)
        return total

    def _collect_masked(self, draw: Draw) -> MaskedSum:
        """A secure sum: five exchanges, of which one is the turn; see `secure_aggregation`."""
        link = SecureLink(self)
        absent = tuple(draw.dropped)
        round_ = (self.pool.run, self.ctx.round, self.down.digest)
        play = SecureRound(*round_, self.weights, link, absent, self.pool.verify)
        result = play.add_up(draw.sites)
        total = link.total or self.make_masked_sum()
        if result.words is None:
            self.refused[ALL_SITES] = result.problem
        else:
            total.reveal(result.words)
            for site in result.survivors:  # what it withheld in another attempt is over
                self.refused.pop(site, None)
            self._record_sum(total)
        self.refused |= result.blamed
        self.liars = {site: result.blamed[site] for site in result.liars}
        return total

    def make_masked_sum(self) -> MaskedSum:
        """An empty sum for one attempt."""
        options = self.plan.config.aggregate
        return MaskedSum(self._stage.schema, self.down.tensors, options, self.weights)

    @property
    def _stage(self) -> StagePlan:
        return self.plan.stage_at(self.ctx.round)

    def ask(
        self,
        sites: Sequence[str],
        total: Total,
        masks: Mapping[str, MaskRequest] | None = None,
        is_signed: Callable[[str, str], bool] = lambda *_: True,
    ) -> dict[str, str]:
        """One message to each site; the signatures of those whose update counts. An update is let
        go as soon as it is added up: memory does not grow with the sites."""
        round_, count = self.ctx.round, len(self.server.roster)
        assets = self.server.list_asset_digests()
        due = (round_ - 1) % self.plan.config.run.evaluate_every == 0
        due = due and self.plan.method.sends_global
        tasks = [
            self.versions.make_task(
                site, round_, count, assets, (masks or {}).get(site), evaluate=due
            )
            for site in sites
        ]
        self.report.updates, self.kept, counted = [], set(), {}
        for task, reply in zip(tasks, self.pool.turns(tasks, self.down), strict=True):
            if isinstance(reply, MissingReply):
                self.report.dropped[task.site] = reply.reason
            elif self._take(task, reply, total, is_signed):
                counted[task.site] = reply.signature
        return counted

    def _take(
        self, task: Task, reply: Reply, total: Total, is_signed: Callable[[str, str], bool]
    ) -> bool:
        """Whether an answer passes the guard and is added up."""
        update, weight = reply.update, self.weights[task.site]
        expected = (task.site, self.ctx.round, self.ctx.stage)
        facts = self.server.roster[task.site]
        limits = {"examples": facts["examples"], **self.plan.method.limits(facts, self.ctx)}
        reason: str | None = reply.withheld or None
        if reason is None and not is_signed(task.site, reply.signature):
            reason = "its masked update is not signed with its node key"
        if reason is None:
            reason = total.offer(update, weight, expected, limits)
        sizes = {asset.digest: asset.bytes for asset in self.server.assets.values()}
        extra = sum(sizes[name] for name in task.lacks)
        self.report.count(task.site, update.bytes, self._stage.schema.bytes_down + extra)
        self.versions.record_delivery(task)
        if self.transcript is not None and task.masks is None:
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


@dataclass
class SecureLink:
    """How the steps of a secure sum reach the sites of a round; `total` is the latest attempt's."""

    collector: Collector
    total: MaskedSum | None = None

    def exchange(self, requests: Sequence[StepRequest]) -> dict[str, StepAnswer]:
        """One small message to each site and back."""
        answers = {}
        replies = self.collector.pool.exchange(requests)
        for request, answer in zip(requests, replies, strict=True):
            if isinstance(answer, MissingReply):
                self.collector.report.dropped[request.site] = answer.reason
                continue
            answers[request.site] = answer
            if answer.withheld:
                self.collector.refused[request.site] = answer.withheld
        return answers

    def collect(
        self, requests: Mapping[str, MaskRequest], is_signed: Callable[[str, str], bool]
    ) -> tuple[MaskedSum, dict[str, str]]:
        """The turns of an attempt, in the order of dispatch."""
        self.total = self.collector.make_masked_sum()
        order = [site for site in self.collector.weights if site in requests]
        return self.total, self.collector.ask(order, self.total, requests, is_signed)


def _without_tensors(update: Update) -> Update:
    """What the figures need of an update."""
    return Update(update.site, update.round, update.stage, {}, update.counts, update.metrics)
