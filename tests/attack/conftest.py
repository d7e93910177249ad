"""What the tests of attacks share: a recorded federation of single images, and small scenes."""

import pytest
import torch

import vitrail
from vitrail import rng
from vitrail.attack import one_step
from vitrail.data.normalize import Normalize
from vitrail.models import build


@pytest.fixture(scope="session")
def recorded(tmp_path_factory, tiny_config):
    """A function: a run that kept its updates; one image and one step a site by default."""
    made = {}

    def run(name="one", **changes):
        if name not in made:
            config = tiny_config(
                **{
                    "data": {"aviary": {"images": 12, "classes": 3}, "image_size": 16},
                    "partition": {
                        "kind": "iid", "sites": 12, "minimum": 1, "test_fraction": 0.0
                    },
                    "model": {"backbone": "small-cnn", "width": 8},
                    "optimizer": {"lr": 0.1},
                    "run": {"rounds": 2, "batch_size": 1, "record_updates": True},
                    **changes,
                }
            )  # fmt: skip
            made[name] = vitrail.run(config, tmp_path_factory.mktemp("recorded") / name)
        return made[name]

    return run


@pytest.fixture(scope="session")
def recorded_method(recorded):
    """A function: one recorded round of a method at three sites of four images."""

    def run(method):
        return recorded(
            method,
            method={"name": method},
            partition={"kind": "iid", "sites": 3, "minimum": 1, "test_fraction": 0.0},
            model={"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}},
            run={"rounds": 1, "batch_size": 4, "record_updates": True},
            optimizer={},
        )

    return run


@pytest.fixture(scope="session")
def scene():
    """A function: gradients of random images on a small network, made at hand."""

    def make(name="small-cnn", sites=2, images=1, size=16, width=6, seed=3, smooth=True):
        key = rng.server(seed)
        network = build(name, 4, width=width, key=key.at("net")).eval()
        from vitrail.attack.adapt import smooth_images

        draw = key.at("images").torch()
        shape = (sites, images, 3, size, size)
        pixels = smooth_images(shape, draw) if smooth else torch.rand(shape, generator=draw)
        normalize = Normalize.named("half", 3)
        labels = torch.randint(4, (sites, images), generator=key.at("labels").torch())
        return one_step(network, 2 * pixels - 1, labels, normalize, 4), pixels, labels

    return make
