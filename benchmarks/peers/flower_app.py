"""The client of the Flower comparison; a module of its own, so that workers import it once."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

import models

app = ClientApp()


@cache
def load_images() -> tuple[Tensor, Tensor]:
    """All images, made once in each worker."""
    torch.set_num_threads(1)
    x, y = work.make_images()
    return x.to(memory_format=torch.channels_last), y


@cache
def load_network(name: str) -> nn.Module:
    """One resident model in each worker."""
    return models.build(name).to(memory_format=torch.channels_last).train()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch of SGD on the site's images."""
    x, y = load_images()
    config = message.content["config"]
    model = load_network(str(config["model"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    site = int(context.node_config["partition-id"])
    site_rows = work.get_rows(site)
    draw = torch.Generator().manual_seed(int(config["server-round"]) * work.SITES + site)
    optimizer = torch.optim.SGD(model.parameters(), lr=work.RATE)
    for batch in torch.randperm(work.IMAGES, generator=draw).split(work.BATCH):
        optimizer.zero_grad()
        F.cross_entropy(model(x[site_rows][batch]), y[site_rows][batch]).backward()
        optimizer.step()
    arrays = ArrayRecord(model.state_dict())
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": work.IMAGES})})
    return Message(content=content, reply_to=message)
