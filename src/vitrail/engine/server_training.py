"""Setting up what the server trains with: a copy of the network, and public images."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np

from vitrail.data.normalize import Normalize
from vitrail.data.public_set import SECTION, load_public
from vitrail.engine.plan import Plan
from vitrail.engine.resolve_config import pick_device
from vitrail.errors import ConfigError
from vitrail.local.inputs import Inputs
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network


def make_server_trainer(plan: Plan, network: Network, size: int) -> ServerTrainer | None:
    """What the server of a run trains with whose images have sides of `size`; None if only its
    sites train.

    Made before anybody trains the network, of which it is a copy.
    """
    method, config = plan.method, plan.config
    if method.server_data == "nothing":
        return None
    shape = (size, size, plan.channels)
    images = np.empty((0, *shape), np.uint8)
    if method.server_data == "public":
        if config.data.public is None:
            raise ConfigError(
                f"{config.method.name} trains on public images at the server, and none are given",
                where=SECTION,
                hint="Add the section [data.public] with the keys of [data]: source, path, ...",
            )
        images = load_public(config.data.public, Path(), shape, plan.key.at("public")).images
    device = pick_device(config.run.device)
    inputs = Inputs(
        images=images,
        labels=np.zeros(len(images), np.int64),
        normalize=Normalize.of(config, plan.channels),
        device=device,
    )
    return ServerTrainer(FlatModel(copy.deepcopy(network), device), inputs, shape)
