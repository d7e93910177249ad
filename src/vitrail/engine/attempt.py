"""Asking the sites of a round: once, or until a secure sum has everybody in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vitrail.aggregate.masked import ALL, MaskedSum
from vitrail.aggregate.sums import Aggregator
from vitrail.engine.outcome import RoundReport
from vitrail.engine.plan import Plan
from vitrail.engine.pool import Pool
from vitrail.engine.sample import Draw
from vitrail.engine.tasks import Down, Missing, Reply, Task
from vitrail.engine.transcript import Transcript
from vitrail.engine.versions import Versions
from vitrail.local.session import Context
from vitrail.methods.server import Server
from vitrail.release.pact import ATTEMPTS, Pact, Party
from vitrail.release.update import Update

Total = Aggregator | MaskedSum


@dataclass
class Attempts:
    """The sites of one round, what they are sent, and what has come of it so far."""

    server: Server
    plan: Plan
    pool: Pool
    versions: Versions
    ctx: Context
    down: Down
    weights: dict[str, float]
    report: RoundReport
    tape: Transcript | None = None
    kept: set[str] = field(default_factory=set)  # sites that saved a state
    refused: dict[str, str] = field(default_factory=dict)

    def plain(self, chosen: Draw) -> Total:
        """Ask everybody once; whoever does not answer is left out."""
        schema = self.plan.stage_at(self.ctx.round).schema
        whole = self.plan.method.needs == "all"
        total = Aggregator(schema, self.down.tensors, self.plan.config.aggregate, whole)
        self._ask(chosen.sites, total, None)
        return total

    def masked(self, chosen: Draw) -> Total:
        """Ask until everybody who was asked is in the sum: whoever does not answer leaves masks
        that nobody can take away, so the others try again without it.

        Those who drop out in a simulation do so here, after the others know their keys.
        """
        schema, options = self.plan.stage_at(self.ctx.round).schema, self.plan.config.aggregate
        keys = dict(self.versions.keys)
        sites = [*chosen.sites, *chosen.dropped]
        for number in range(1, ATTEMPTS + 1):
            parties = {site: Party(keys[site], self.weights[site]) for site in sites}
            pact = Pact(number, parties)
            total = MaskedSum(schema, self.down.tensors, options, pact)
            if reason := pact.problem(self.ctx.round):
                self.refused[ALL] = reason
                return total
            sites = self._ask([s for s in sites if s not in chosen.dropped], total, pact)
            if total.whole:
                self._record(total)
                return total
        self.refused[ALL] = f"in {ATTEMPTS} attempts never everybody answered"
        return total

    def _ask(self, sites: Sequence[str], total: Total, pact: Pact | None) -> list[str]:
        """One message to each site; returns those whose update counts."""
        round_, count = self.ctx.round, len(self.server.roster)
        assets = {name: asset.digest for name, asset in sorted(self.server.assets.items())}
        due = (round_ - 1) % self.plan.config.run.evaluate_every == 0
        due = due and self.plan.method.sends_global
        tasks = [
            self.versions.task(site, round_, count, assets, pact, evaluate=due) for site in sites
        ]
        self.report.updates, self.kept, found = [], set(), []
        for task, reply in zip(tasks, self.pool.turns(tasks, self.down), strict=True):
            if isinstance(reply, Missing):
                self.report.dropped[task.site] = reply.reason
            elif self._counts(task, reply, total):
                found.append(task.site)
        return found

    def _counts(self, task: Task, reply: Reply, total: Total) -> bool:
        """Whether an answer passes the guard and is added up."""
        update, weight = reply.update, self.weights[task.site]
        if reply.key is not None:
            self.versions.announce(task.site, reply.key, self.ctx.round)
        expected = (task.site, self.ctx.round, self.ctx.stage)
        limits = self.plan.method.limits(self.server.roster[task.site], self.ctx)
        reason = reply.withheld or total.offer(update, weight, expected, limits)
        weigh = {asset.digest: asset.bytes for asset in self.server.assets.values()}
        brought = sum(weigh[name] for name in task.lacks)
        schema = self.plan.stage_at(self.ctx.round).schema
        self.report.count(task.site, update.bytes, schema.bytes_down + brought)
        self.versions.brought(task)
        if self.tape is not None and task.pact is None:
            self.tape.received(task, update, weight, reason)
        if reason is not None:
            self.refused[task.site] = reason
            return False
        self.report.updates.append(_light(update))
        if reply.kept:
            self.kept.add(task.site)
        return True

    def _record(self, total: MaskedSum) -> None:
        """What the server has after a secure sum: its result, and nothing of any one site."""
        if self.tape is None:
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
        update = Update(ALL, self.ctx.round, self.ctx.stage, tensors, counts)
        weight = sum(self.weights[site] for site in sums.accepted)
        self.tape.received(Task(ALL, self.ctx.round, len(roster)), update, weight, None)


def _light(update: Update) -> Update:
    """The update without its tensors, for the figures."""
    return Update(update.site, update.round, update.stage, {}, update.counts, update.metrics)
