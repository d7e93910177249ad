"""One round: draw, open, collect, finish, close. The same for every method."""

from __future__ import annotations

from torch import Tensor

from vitrail.aggregate.rule import Rule
from vitrail.aggregate.sums import SumNoise, Sums
from vitrail.engine.alarms import Alarms
from vitrail.engine.collect import Collector
from vitrail.engine.plan import Plan
from vitrail.engine.round_report import RoundReport
from vitrail.engine.sampling import Draw, draw_sites, order_sites
from vitrail.engine.site_versions import Versions
from vitrail.engine.storage.transcript import Transcript
from vitrail.engine.tasks import MissingReply, RoundMessage, Task
from vitrail.engine.trusted_training import train_trusted
from vitrail.engine.weigh_sites import weigh_sites
from vitrail.engine.workers.pool import Pool
from vitrail.errors import RunError
from vitrail.local.session import Context
from vitrail.methods.base.server import Server
from vitrail.release.message import digest


def play_round(
    server: Server,
    plan: Plan,
    pool: Pool,
    versions: Versions,
    round_: int,
    transcript: Transcript | None = None,
    alarms: Alarms | None = None,
) -> RoundReport:
    """Play one round and leave the server as it is after it; only sums stay in memory."""
    ctx = plan.context(round_, len(server.roster))
    draw = _choose_sites(plan, server, ctx, alarms)
    down = _open(plan, server, ctx)
    if transcript is not None:
        transcript.write_sent(down)
    report = RoundReport(round_, dropped={**draw.dropped, **draw.left_out})
    weights = _weigh(plan, server, draw, ctx)
    collector = Collector(server, plan, pool, versions, ctx, down, weights, report, transcript)
    if alarms is not None and plan.config.aggregate.norm_bound == "refuse":
        collector.largest_change = alarms.compute_norm_bound()
    if plan.trusts:
        collector.trusted = train_trusted(server, ctx, down.tensors)
    total = collector.collect(draw)
    sums = total.finish(_make_noise(plan, server, ctx))
    report.accepted, report.refused = sums.accepted, {**collector.refused, **sums.refused}
    report.void = len(sums.accepted) < _least_sites(plan, ctx) or bool(sums.shortage)
    report.shortage = sums.shortage
    if alarms is not None:
        report.alarmed = tuple(alarms.record(round_, sums.oddness))
        alarms.exclude(round_, collector.liars)
    if not report.void:
        report.figures = {**sums.metrics, **_close(plan, server, sums, ctx)}
        versions.accepted |= dict.fromkeys(collector.kept, round_)
    return report


def _choose_sites(plan: Plan, server: Server, ctx: Context, alarms: Alarms | None) -> Draw:
    """The sites of the round without those in quarantine; where all images are in one place, that
    place never drops out."""
    examples = {site: facts["examples"] for site, facts in server.roster.items()}
    if plan.method.pooled:
        return Draw(tuple(order_sites(examples)), {})
    everybody = plan.stage_at(ctx.round).stage.sites == "all"
    draw = draw_sites(examples, plan.config.run, ctx.key, everybody)
    held = {} if alarms is None else alarms.list_quarantined(ctx.round)
    staying = tuple(site for site in draw.sites if site not in held)
    left_out = {site: held[site] for site in draw.sites if site in held}
    dropped = {site: why for site, why in draw.dropped.items() if site not in held}
    return Draw(staying, dropped, left_out)


def _open(plan: Plan, server: Server, ctx: Context) -> RoundMessage:
    """The message of the round, the same for every site."""
    tensors = plan.method.open(server, ctx)
    if undeclared := sorted(set(server.assets) - set(plan.list_assets())):
        raise RunError(
            f"method {plan.config.method.name!r} gives sites {undeclared[0]!r} to keep, which it "
            "does not declare",
            hint="A method gives back what its messages keep as it comes, under the same name.",
        )
    task = Task("", ctx.round, len(server.roster), assets=server.list_asset_digests())
    return RoundMessage(ctx.round, tensors, digest(task.make_digest_header(ctx.stage), tensors))


def _weigh(plan: Plan, server: Server, draw: Draw, ctx: Context) -> dict[str, float]:
    """How much each site counts. In a secure sum those who will drop out have told their keys
    already."""
    secure = plan.stage_at(ctx.round).masked is not None
    sites = (*draw.sites, *draw.dropped) if secure else draw.sites
    return weigh_sites(plan, server.roster, sites)


def _make_noise(plan: Plan, server: Server, ctx: Context) -> SumNoise | None:
    """The noise that defenses want in the sums, from a secret that no site has.

    It depends on the sum: with the same noise, two sums of one round would differ by a site's
    update in clear.
    """
    defenses = [d for d in plan.defenses() if d.formal]
    if not defenses:
        return None

    def noise(rule: Rule, total: Tensor) -> Tensor:
        names = list(dict.fromkeys(field.rule for field in rule.group.fields))
        for defense in defenses:
            deviation = defense.deviation(names[0], 0, ctx) if names else None
            if deviation is not None:
                content = digest({"rule": names[0]}, {"total": total})
                source = server.make_secret_stream(ctx, "sum", defense.name, names[0], content)
                total = rule.disturb(total, deviation, source)
        return total

    return noise


def _least_sites(plan: Plan, ctx: Context) -> int:
    """With fewer accepted updates a round does not count; a secure sum of one would tell it."""
    if plan.method.pooled:
        return 1
    secure = plan.stage_at(ctx.round).masked is not None
    return max(plan.config.run.min_sites, 2 if secure else 1)


def _close(plan: Plan, server: Server, sums: Sums, ctx: Context) -> dict[str, float]:
    """Close the round unless nobody had any weight in it."""
    if plan.stage_at(ctx.round).schema.up_added and not sums.tensors:
        return {}
    return plan.method.close(server, sums, ctx)


def close_run(server: Server, plan: Plan, pool: Pool, versions: Versions) -> RoundReport:
    """The closing turn of all sites: arrive, evaluate the final model, send figures only."""
    round_ = plan.config.run.rounds + 1
    stage = plan.stages[-1]
    views = plan.layout.views(server.values)
    tensors = {f"model/{name}": views[name] for name in stage.arrives}
    down = RoundMessage(round_, tensors, digest({"round": round_, "stage": "closing"}, tensors))
    order = order_sites({site: facts["examples"] for site, facts in server.roster.items()})
    tasks = [versions.make_task(site, round_, len(order), closing=True) for site in order]
    updates, away = [], {}
    for task, reply in zip(tasks, pool.turns(tasks, down), strict=True):
        if isinstance(reply, MissingReply):
            away[task.site] = reply.reason
        else:
            updates.append(reply.update)
    there = tuple(site for site in order if site not in away)
    sent = len(there) * sum(t.numel() * t.element_size() for t in tensors.values())
    return RoundReport(round_, updates, away, accepted=there, bytes_down=sent)
