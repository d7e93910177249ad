"""Setting up the server's bench: a copy of the network, and the public images it is given."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np

from vitrail.data.normalize import Normalize
from vitrail.data.public import SECTION, load_public
from vitrail.engine.plan import Plan
from vitrail.engine.settle import pick_device
from vitrail.errors import ConfigError
from vitrail.local.inputs import Inputs
from vitrail.methods.bench import Bench
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network


def make_bench(plan: Plan, network: Network, size: int) -> Bench | None:
    """The bench of a run whose images have sides of `size`; None if only its sites train.

    Made before anybody trains the network, of which it is a copy.
    """
    method, config = plan.method, plan.config
    if not method.at_server:
        return None
    shape = (size, size, plan.channels)
    images = np.empty((0, *shape), np.uint8)
    if method.public:
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
    bench = Bench(FlatModel(copy.deepcopy(network), device), inputs, shape)
    method.check_bench(bench)
    return bench
