"""Distillation at the server: the global model learns what the sites' models say of public images.

Hinton et al. 2015, arXiv:1503.02531.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config.schema import Positive
from vitrail.local.inputs import Rows, draw_epoch
from vitrail.local.optimizer import OptimizerSettings, make_steppers
from vitrail.local.session import Metrics
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_options import ServerOptions
from vitrail.rng import Key


class DistillOptions(ServerOptions):
    """Those of the server's training, on public images."""

    temperature: Positive = 1.0
    """What logits are divided by before their softmax."""


def draw_public_batches(
    public: Rows, options: DistillOptions, key: Key
) -> tuple[Rows, tuple[Tensor, ...]]:
    """The public images of a round, and for every step the positions of its batch among them.

    They come in shuffled cycles over all.
    """
    order, batches = key.at("public").torch(), list[Tensor]()
    while len(batches) < options.steps:
        batches += draw_epoch(len(public), options.server_batch, order)
    batches = batches[: options.steps]
    used, places = torch.unique(torch.cat(batches), return_inverse=True)
    return public[used.numpy()], places.split([len(at) for at in batches])


def compute_site_logits(server: Server, sums: Sums, rows: Rows) -> dict[str, Tensor]:
    """The logits [len(rows), classes] of each site's model on some public images, by site."""
    trainer = server.required_trainer
    return {
        site: trainer.compute_logits(server.assemble_site_model(tensors), rows)
        for site, tensors in sums.models.items()
    }


def distill(
    server: Server, rows: Rows, logits: Tensor, batches: Sequence[Tensor], options: DistillOptions
) -> Metrics:
    """Move the global model toward what the teachers' logits on `rows` say: KL(teacher || model).

    Normalization keeps the statistics of the mean, in both: what is taught is the function that
    is used afterwards, and public images may look unlike the sites'.
    """
    trainer, cold = server.required_trainer, options.temperature
    model = trainer.load(server.values)
    teacher = F.softmax(logits / cold, dim=1).to(model.values.device)
    moving = make_steppers(model, None, OptimizerSettings("adam", options.server_lr))
    total, seen = 0.0, 0
    for at in batches:
        model.grads.zero_()
        log_probabilities = F.log_softmax(
            model.network(trainer.inputs.plain(rows[at.numpy()])) / cold, dim=1
        )
        loss = F.kl_div(log_probabilities, teacher[at], reduction="batchmean") * cold**2
        loss.backward()  # type: ignore[no-untyped-call]
        for stepper in moving:
            stepper.step()
        total += float(loss.detach()) * len(at)
        seen += len(at)
    server.values.copy_(model.values.to(server.values.device))
    return {"distilled": total / max(1, seen), "image_steps": float(seen)}


def average_logits(logits: Sequence[Tensor]) -> Tensor:
    """The mean in float64, in a fixed order."""
    return torch.stack(list(logits)).double().mean(0).float()
