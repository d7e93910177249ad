"""One round: open, deal out, guard, add up, close. The same for every method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vitrail.aggregate.sums import Aggregator, Sums
from vitrail.engine.plan import Plan
from vitrail.engine.pool import Pool
from vitrail.engine.sample import draw
from vitrail.engine.tasks import Down, Task
from vitrail.methods.server import Server
from vitrail.release.message import digest
from vitrail.release.update import Update


@dataclass
class Versions:
    """Which state each site builds on: its last accepted round, now and at the last checkpoint."""

    accepted: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)

    def task(self, site: str, round_: int, **flags: bool) -> Task:
        """The task of a site, with the state to build on and the oldest one still needed."""
        base = self.accepted.get(site, 0)
        return Task(site, round_, base, self.durable.get(site, 0), **flags)


@dataclass
class RoundReport:
    """What one round came to."""

    round: int
    updates: list[Update] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    void: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


def play(
    server: Server, plan: Plan, pool: Pool, versions: Versions, round_: int, keep: Any = None
) -> RoundReport:
    """Play one round and leave the server as it is after it.

    `keep(update, weight)` sees each accepted update (to record it); only sums stay in memory.
    """
    config, stage = plan.config, plan.stage_at(round_)
    ctx = plan.context(round_, len(server.roster))
    examples = {site: facts["examples"] for site, facts in server.roster.items()}
    chosen = draw(examples, config.run, ctx.key, stage.stage.sites == "all")
    report = RoundReport(round_, dropped=dict(chosen.dropped))

    tensors = plan.method.open(server, ctx)
    down = Down(round_, tensors, digest({"round": round_, "stage": ctx.stage}, tensors))
    weights = _weights(plan, server, chosen.sites)
    total = Aggregator(stage.schema, tensors, config.aggregate)
    due = (round_ - 1) % config.run.evaluate_every == 0 and plan.method.sends_global
    tasks = [versions.task(site, round_, evaluate=due) for site in chosen.sites]
    kept: set[str] = set()
    for task, reply in zip(tasks, pool.turns(tasks, down), strict=True):
        update = reply.update
        reason = total.offer(update, weights[task.site], (task.site, round_, ctx.stage))
        report.bytes_up += update.bytes
        report.bytes_down += stage.schema.bytes_down
        if reason is None:
            if reply.kept:
                kept.add(task.site)
            if keep is not None:
                keep(update, weights[task.site])
            report.updates.append(_light(update))
    sums = total.finish()
    report.refused, report.accepted = sums.refused, sums.accepted
    report.void = len(sums.accepted) < config.run.min_sites or not sums.accepted
    if not report.void:
        report.figures = {**sums.metrics, **_close(plan, server, sums, ctx)}
        versions.accepted |= dict.fromkeys(kept, round_)
    return report


def _close(plan: Plan, server: Server, sums: Sums, ctx: Any) -> dict[str, float]:
    """Close the round unless nobody had any weight in it."""
    if plan.stage_at(ctx.round).schema.up and not sums.tensors:
        return {}
    return plan.method.close(server, sums, ctx)


def _weights(plan: Plan, server: Server, sites: tuple[str, ...]) -> dict[str, float]:
    choice = plan.config.aggregate.weights
    if choice == "uniform":
        return dict.fromkeys(sites, 1.0)
    if choice == "examples":
        return {site: server.roster[site]["examples"] for site in sites}
    return plan.method.weights(server.roster, sites)


def _light(update: Update) -> Update:
    """The update without its tensors, for the figures."""
    return Update(update.site, update.round, update.stage, {}, update.counts, update.metrics)


def close_run(server: Server, plan: Plan, pool: Pool, versions: Versions) -> RoundReport:
    """The closing turn of all sites: arrive, evaluate the final model, send figures only."""
    round_ = plan.config.run.rounds + 1
    tensors = {f"model/{n}": t for n, t in plan.layout.views(server.values).items()}
    tensors = {name: tensors[name] for name in (f"model/{n}" for n in plan.stages[-1].travels)}
    down = Down(round_, tensors, digest({"round": round_, "stage": "closing"}, tensors))
    order = sorted(server.roster, key=lambda site: (-server.roster[site]["examples"], site))
    tasks = [versions.task(site, round_, closing=True) for site in order]
    replies = pool.turns(tasks, down)
    return RoundReport(round_, [reply.update for reply in replies], accepted=tuple(order))
