"""What the server's own trusted images would teach the model, for rules that compare with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from vitrail.local.inputs import draw_epoch
from vitrail.local.loop import train
from vitrail.local.session import Context
from vitrail.local.terms import Batch, Terms
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.rng import seed_torch


def train_trusted(server: Server, ctx: Context, sent: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The model tensors of a round's message after the server trained them as a site does: as many
    epochs, the same batches and rate, the head's own loss (Cao et al. 2021, section 4.2)."""
    trainer, key = server.required_trainer, ctx.key.at("trusted")
    model = trainer.load(server.sent)
    with seed_torch(key.at("dropout")):
        train(model, _draw_batches(trainer, ctx), Terms(), ctx.optimizer)
    views = model.named
    names = {name: name.removeprefix("model/") for name in sent}
    return {name: views[own].clone() for name, own in names.items() if own in views}


def _draw_batches(trainer: ServerTrainer, ctx: Context) -> Iterator[Batch]:
    """Batches of features of the frozen stages, in shuffled epochs."""
    generator, inputs = ctx.key.at("trusted", "batches").torch(), trainer.inputs
    for _ in range(ctx.epochs):
        for at in draw_epoch(len(trainer.rows), ctx.batch_size, generator):
            rows = at.numpy()
            x = inputs.plain(rows)
            z = x if inputs.features is not None else trainer.model.network.prefix(x)
            yield z, inputs.targets(rows)
