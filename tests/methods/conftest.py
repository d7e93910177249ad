"""A server on its own: a small network, ten public images, and sites that moved from its model."""

import copy

import numpy as np
import pytest
import torch

from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.local.inputs import Inputs
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.models.flat import FlatModel
from vitrail.models.network import make_network
from vitrail.rng import Key

KEY = Key(b"a key of servers")


@pytest.fixture
def server():
    """A server that can train, after it has sent its model."""
    network, _ = make_network(Model(backbone="small-cnn", width=4), "linear", 3, 3, KEY.at("init"))
    images = KEY.at("images").numpy().integers(0, 256, (10, 12, 12, 3), dtype=np.uint8)
    inputs = Inputs(images, np.zeros(10, np.int64), Normalize.from_name("half", 3))
    flat = FlatModel(network)
    names = tuple(spec.name for spec in flat.layout.specs)
    server = Server(flat.layout, flat.layout.region(names), names, flat.values.clone())
    server.trainer = ServerTrainer(FlatModel(copy.deepcopy(network)), inputs, (12, 12, 3))
    server.make_model_message()
    return server


@pytest.fixture
def moved():
    """A function: flat models of some sites, away from the server's."""

    def make(server, count):
        models = {}
        for k in range(count):
            noise = torch.randn(server.values.shape, generator=KEY.at("site", k).torch())
            noise[server.layout.trainable :] = 0  # a variance below zero is none
            models[f"site-{k}"] = server.values + 0.3 * noise
        return models

    return make


@pytest.fixture
def network_at():
    """A function: a server's network with some flat values, in float64."""

    def make(server, flat):
        network = copy.deepcopy(server.trainer.model.network)
        network.load_state_dict({**network.state_dict(), **server.layout.views(flat)})
        return network.double().eval()

    return make
