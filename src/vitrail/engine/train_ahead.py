"""The linear heads of several sites, trained at once before their turns, to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from vitrail.data.partition.partition import SiteRows
from vitrail.engine.plan import Plan, StagePlan
from vitrail.engine.tasks import Task
from vitrail.local.inputs import Inputs
from vitrail.local.phases.phase import Fit
from vitrail.local.session import TrainedAhead
from vitrail.local.stacked_heads import HeadJob, SgdRates, find_stack_obstacle, train_linear_heads
from vitrail.methods import Method
from vitrail.release.defenses.defense import Defense
from vitrail.rng import Key

_MOST_TOGETHER = 32  # sites at once: memory does not grow with a round
_NUMBERS = ("head.weight", "head.bias")


def count_together(plan: Plan) -> int:
    """How many sites of a process train at once, where any do."""
    alone = all(find_obstacle(plan, stage) for stage in plan.stages)
    return 1 if alone else _MOST_TOGETHER


def describe_training(plan: Plan) -> str:
    """How sites with a frozen backbone train, for the card of a run."""
    count = count_together(plan)
    if count > 1:
        return f"linear heads of up to {count} sites at once"
    return f"one site at a time: {find_obstacle(plan, plan.stages[0])}"


def find_obstacle(plan: Plan, stage: StagePlan) -> str | None:
    """Why the sites of a stage train one at a time, or None."""
    config, names = plan.config, tuple(spec.name for spec in plan.layout.specs)
    added = [d for d in plan.defenses() if type(d).train is not Defense.train]
    obstacles = {
        "more than a linear head is trained": plan.method.model != "linear" or names != _NUMBERS,
        "features are not cached": not config.model.cache_features,
        "images are varied in training": config.data.augment.active or len(config.data.views) > 1,
        f"the optimizer is {plan.optimizer.name}": plan.optimizer.name != "sgd",
        "a stage does more than train": bool(stage.stage.arrive)
        or [type(phase) for phase in stage.stage.train] != [Fit],
        "tensors stay at their site": bool(stage.home or stage.still & set(names)),
        f"{config.method.name} adds to plain training": type(plan.method).begin is not Method.begin,
        "a defense adds to plain training": bool(added),
    }
    found = next((words for words, there in obstacles.items() if there), None)
    if found is not None:
        return found
    classes = len(plan.classes)
    return find_stack_obstacle(config.run.batch_size, plan.layout.specs[0].size // classes, classes)


def train_ahead(
    plan: Plan,
    inputs: Inputs,
    sites: dict[str, SiteRows],
    secret: Callable[[str], Key],
    tasks: Sequence[Task],
    start: Tensor,
) -> dict[str, TrainedAhead]:
    """What the heads of some sites of one round come to from `start`; a site is left out where
    its own turn has to train it."""
    stage, ctx = plan.stage_at(tasks[0].round), plan.context(tasks[0].round, tasks[0].sites)
    fitting = inputs.features is not None and inputs.views == 1 and inputs.device.type == "cpu"
    if not fitting or tasks[0].closing or find_obstacle(plan, stage) is not None:
        return {}
    fit = stage.stage.train[0]
    assert isinstance(fit, Fit)
    jobs = {}
    for task in tasks:
        rows = sites[task.site].train
        if len(rows) > 1:  # a single row is multiplied another way
            key = secret(task.site).at("round", task.round)
            batches = tuple(fit.draw_batches(key, len(rows), ctx))
            jobs[task.site] = HeadJob(inputs.plain(rows), inputs.targets(rows), batches)
    if len(jobs) < 2 or any(len(b) == 1 for job in jobs.values() for b in job.batches):
        return {}
    lr, decay = ctx.optimizer.of("head")
    rates = SgdRates(lr, ctx.optimizer.momentum, decay)
    trained = train_linear_heads(start, len(plan.classes), list(jobs.values()), rates)
    return {
        site: TrainedAhead(fit.name, start, values, result)
        for site, (values, result) in zip(jobs, trained, strict=True)
    }
