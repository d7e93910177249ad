"""Small networks for explanations."""

import pytest
import torch

from vitrail.config.schema import Model, Prototypes
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key


@pytest.fixture
def network():
    """A function: a small network in evaluation mode, with tensors of its own."""

    def make(head="protopnet", classes=3, seed=0, frozen=False, backbone="small-cnn", per_class=4):
        model = Model(
            backbone=backbone,
            width=8,
            frozen=frozen,
            prototypes=Prototypes(per_class=per_class, depth=6),
        )
        return make_network(model, head, 3, classes, derive_server_key(seed))[0].eval()

    return make


@pytest.fixture
def picture():
    """A function: random normalized images [N, 3, S, S]."""
    return lambda count=1, size=32, seed=0: torch.randn(
        count, 3, size, size, generator=derive_server_key(seed).at("picture").torch()
    )
