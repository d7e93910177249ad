"""One round: open, deal out, guard, add up, close. The same for every method."""

from __future__ import annotations

from torch import Tensor

from vitrail.aggregate.rule import Rule
from vitrail.aggregate.sums import SumNoise, Sums
from vitrail.engine.attempt import Attempts
from vitrail.engine.outcome import RoundReport
from vitrail.engine.plan import Plan
from vitrail.engine.pool import Pool
from vitrail.engine.sample import Draw, draw, in_order
from vitrail.engine.tasks import Down, Missing, Task
from vitrail.engine.transcript import Transcript
from vitrail.engine.versions import Versions
from vitrail.local.session import Context
from vitrail.methods.server import Server
from vitrail.release.message import digest


def play(
    server: Server,
    plan: Plan,
    pool: Pool,
    versions: Versions,
    round_: int,
    tape: Transcript | None = None,
) -> RoundReport:
    """Play one round and leave the server as it is after it; only sums stay in memory."""
    config, stage = plan.config, plan.stage_at(round_)
    count = len(server.roster)
    ctx = plan.context(round_, count)
    chosen = _draw(plan, server, ctx)
    report = RoundReport(round_, dropped=dict(chosen.dropped))

    tensors = plan.method.open(server, ctx)
    assets = {name: asset.digest for name, asset in sorted(server.assets.items())}
    header = Task("", round_, count, assets=assets).names(ctx.stage)
    down = Down(round_, tensors, digest(header, tensors))
    if tape is not None:
        tape.sent(down)
    secure = stage.masked is not None
    asked = (*chosen.sites, *chosen.dropped) if secure else chosen.sites
    weights = _weights(plan, server, asked)
    attempts = Attempts(server, plan, pool, versions, ctx, down, weights, report, tape)
    total = attempts.masked(chosen) if secure else attempts.plain(chosen)
    sums = total.finish(_noise(plan, server, ctx))
    report.refused, report.accepted = {**attempts.refused, **sums.refused}, sums.accepted
    wanted = 1 if plan.method.pooled else max(config.run.min_sites, 2 if secure else 1)
    report.void = len(sums.accepted) < wanted
    if not report.void:
        report.figures = {**sums.metrics, **_close(plan, server, sums, ctx)}
        versions.accepted |= dict.fromkeys(attempts.kept, round_)
    return report


def _noise(plan: Plan, server: Server, ctx: Context) -> SumNoise | None:
    """The noise that defenses want in the sums, from a secret that no site has."""
    defenses = [d for d in plan.defenses() if d.formal]
    if not defenses:
        return None

    def noise(rule: Rule, total: Tensor) -> Tensor:
        names = list(dict.fromkeys(field.rule for field in rule.group.fields))
        for defense in defenses:
            deviation = defense.deviation(names[0], 0, ctx) if names else None
            if deviation is not None:
                source = server.hidden(ctx, "sum", defense.name, names[0])
                total = rule.disturb(total, deviation, source)
        return total

    return noise


def _draw(plan: Plan, server: Server, ctx: Context) -> Draw:
    """The sites of the round; where all images are in one place, that place never drops out."""
    examples = {site: facts["examples"] for site, facts in server.roster.items()}
    if plan.method.pooled:
        return Draw(tuple(in_order(examples)), {})
    everybody = plan.stage_at(ctx.round).stage.sites == "all"
    return draw(examples, plan.config.run, ctx.key, everybody)


def _close(plan: Plan, server: Server, sums: Sums, ctx: Context) -> dict[str, float]:
    """Close the round unless nobody had any weight in it."""
    if plan.stage_at(ctx.round).schema.up_added and not sums.tensors:
        return {}
    return plan.method.close(server, sums, ctx)


def _weights(plan: Plan, server: Server, sites: tuple[str, ...]) -> dict[str, float]:
    """How much each site counts; one that an audit suspects may count less."""
    found = _chosen_weights(plan, server, sites)
    return {site: weight * plan.config.debias.factor(site) for site, weight in found.items()}


def _chosen_weights(plan: Plan, server: Server, sites: tuple[str, ...]) -> dict[str, float]:
    choice = plan.config.aggregate.weights
    if choice == "uniform":
        return dict.fromkeys(sites, 1.0)
    if choice == "examples":
        return {site: server.roster[site]["examples"] for site in sites}
    return plan.method.weights(server.roster, sites)


def close_run(server: Server, plan: Plan, pool: Pool, versions: Versions) -> RoundReport:
    """The closing turn of all sites: arrive, evaluate the final model, send figures only."""
    round_ = plan.config.run.rounds + 1
    stage = plan.stages[-1]
    views = plan.layout.views(server.values)
    tensors = {f"model/{name}": views[name] for name in stage.arrives}
    down = Down(round_, tensors, digest({"round": round_, "stage": "closing"}, tensors))
    order = in_order({site: facts["examples"] for site, facts in server.roster.items()})
    tasks = [versions.task(site, round_, len(order), closing=True) for site in order]
    updates, away = [], {}
    for task, reply in zip(tasks, pool.turns(tasks, down), strict=True):
        if isinstance(reply, Missing):
            away[task.site] = reply.reason
        else:
            updates.append(reply.update)
    there = tuple(site for site in order if site not in away)
    sent = len(there) * sum(t.numel() * t.element_size() for t in tensors.values())
    return RoundReport(round_, updates, away, accepted=there, bytes_down=sent)
