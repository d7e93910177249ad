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
from vitrail.local.inputs import Rows, epoch
from vitrail.local.optimizer import OptimizerSettings, steppers
from vitrail.local.session import Metrics
from vitrail.methods.server import Server
from vitrail.methods.server_options import ServerOptions
from vitrail.rng import Key


class DistillOptions(ServerOptions):
    """Those of the server's training, on public images."""

    temperature: Positive = 1.0
    """What logits are divided by before their softmax."""


def drawn(public: Rows, options: DistillOptions, key: Key) -> tuple[Rows, tuple[Tensor, ...]]:
    """The public images of a round, and for every step the positions of its batch among them.

    They come in shuffled cycles over all.
    """
    order, found = key.at("public").torch(), list[Tensor]()
    while len(found) < options.steps:
        found += epoch(len(public), options.server_batch, order)
    found = found[: options.steps]
    used, places = torch.unique(torch.cat(found), return_inverse=True)
    return public[used.numpy()], places.split([len(at) for at in found])


def opinions(server: Server, sums: Sums, rows: Rows) -> dict[str, Tensor]:
    """The logits [len(rows), classes] of each site's model on some public images, by site."""
    bench = server.workplace
    return {site: bench.logits(server.site(own), rows) for site, own in sums.models.items()}


def distill(
    server: Server, rows: Rows, logits: Tensor, batches: Sequence[Tensor], options: DistillOptions
) -> Metrics:
    """Move the global model toward what the teachers' logits on `rows` say: KL(teacher || model).

    Normalization keeps the statistics of the mean, in both: what is taught is the function that
    is used afterwards, and public images may look unlike the sites'.
    """
    bench, cold = server.workplace, options.temperature
    model = bench.load(server.values)
    teacher = F.softmax(logits / cold, dim=1).to(model.values.device)
    moving = steppers(model, None, OptimizerSettings("adam", options.server_lr))
    total, seen = 0.0, 0
    for at in batches:
        model.grads.zero_()
        said = F.log_softmax(model.network(bench.inputs.plain(rows[at.numpy()])) / cold, dim=1)
        loss = F.kl_div(said, teacher[at], reduction="batchmean") * cold**2
        loss.backward()  # type: ignore[no-untyped-call]
        for stepper in moving:
            stepper.step()
        total += float(loss.detach()) * len(at)
        seen += len(at)
    server.values.copy_(model.values.to(server.values.device))
    return {"distilled": total / max(1, seen), "image_steps": float(seen)}


def mean_of(logits: Sequence[Tensor]) -> Tensor:
    """The mean in float64, in a fixed order."""
    return torch.stack(list(logits)).double().mean(0).float()
