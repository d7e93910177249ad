"""What the tests of attacks share: a recorded federation of single images, and small scenes."""

import numpy as np
import pytest
import torch

import vitrail
from vitrail import rng
from vitrail.attack import one_step
from vitrail.data.normalize import Normalize
from vitrail.models import build
from vitrail.runs.reopen import load_run_federation

SIDE, SITES = 16, 3


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
        key = rng.derive_server_key(seed)
        network = build(name, 4, width=width, key=key.at("net")).eval()
        from vitrail.attack.inversion.adaptive import draw_smooth_images

        draw = key.at("images").torch()
        shape = (sites, images, 3, size, size)
        pixels = draw_smooth_images(shape, draw) if smooth else torch.rand(shape, generator=draw)
        normalize = Normalize.from_name("half", 3)
        labels = torch.randint(4, (sites, images), generator=key.at("labels").torch())
        return one_step(network, 2 * pixels - 1, labels, normalize, 4), pixels, labels

    return make


@pytest.fixture(scope="session")
def sharing(recorded):
    """A function: a small recorded run of fedxds with some options."""

    def run(name="plain", **options):
        noise = {} if options.get("protection") == "local-dp" else {"sigma": 0.05}
        return recorded(
            f"sharing-{name}",
            data={"aviary": {"images": 90, "classes": 3}, "image_size": SIDE},
            partition={"kind": "iid", "sites": SITES, "minimum": 1, "test_fraction": 0.3},
            method={"name": "fedxds", "warmup": 1, "removed": 0.5, **noise, **options},
            run={"rounds": 3, "batch_size": 16, "record_updates": True},
            optimizer={},
        )

    return run


@pytest.fixture(scope="session")
def public(tmp_path_factory):
    """Birds that no site holds."""
    config = {
        "data": {"source": "embedded", "image_size": SIDE, "aviary": {"images": 80, "seed": 99}},
        "run": {"rounds": 1},
    }
    folder = tmp_path_factory.mktemp("public")
    birds = load_run_federation(vitrail.run(config, folder / "run")).images
    np.savez(folder / "birds.npz", x=birds.images, y=birds.labels)
    return folder / "birds.npz"
