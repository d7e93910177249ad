"""THE local training loop. Every method trains through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from vitrail.local.optimizer import OptimizerSettings, make_steppers
from vitrail.local.session import Result
from vitrail.local.terms import Batch, Objective, Terms
from vitrail.models.flat import FlatModel
from vitrail.models.heads.head import Outputs
from vitrail.models.parts import Part


def train(
    model: FlatModel,
    batches: Iterable[Batch],
    terms: Terms,
    settings: OptimizerSettings,
    parts: tuple[Part, ...] | None = None,
    forward: Callable[[Tensor], Outputs] | None = None,
) -> Result:
    """One step per batch: gradient of what saw data, pulls, clipping, then each part's step.

    `forward` is what a batch goes through, by default everything after the frozen stages.
    """
    objective = Objective(model.network, forward or model.network.rest, terms.loss)
    steps = images = 0
    device = model.values.device
    wide = torch.float32 if device.type == "mps" else torch.float64  # which has no float64
    total = torch.zeros((), dtype=wide, device=device)
    with model.training(parts):
        moving = make_steppers(model, parts, settings)
        for batch in batches:
            model.grads.zero_()
            loss = terms.gradient(model, batch, objective)
            for pull in terms.pull:
                pull(model)
            if terms.clip is not None:
                _clip(model.grads, terms.clip)
            for stepper in moving:
                stepper.step()
            steps += 1
            images += len(batch[1])
            total += loss * len(batch[1])
    return Result(steps, images, float(total) / images if images else float("nan"))


def _clip(grads: Tensor, limit: float) -> None:
    norm = torch.linalg.vector_norm(grads)
    if norm > limit:
        grads.mul_(limit / norm)
