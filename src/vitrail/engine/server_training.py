"""Setting up what the server trains with: a copy of the network, and public images."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import ImageSet
from vitrail.data.normalize import Normalize
from vitrail.data.public_set import SECTION, load_public
from vitrail.engine.plan import Plan
from vitrail.engine.resolve_config import pick_device
from vitrail.errors import ConfigError
from vitrail.local.evaluate import compute_prefix
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
    if method.server_data == "nothing" and not plan.trusts:
        return None
    shape = (size, size, plan.channels)
    images = np.empty((0, *shape), np.uint8)
    labels = np.zeros(0, np.int64)
    if method.server_data == "public" or plan.trusts:
        public = _load(plan, shape)
        images = public.images
        labels = match_labels(public, plan.classes) if plan.trusts else np.zeros(len(public), int)
    device = pick_device(config.run.device)
    model = FlatModel(copy.deepcopy(network), device)
    normalize = Normalize.of(config, plan.channels)
    inputs = Inputs(images=images, labels=labels, normalize=normalize, device=device)
    if method.server_data == "nothing" and network.cut:  # only `rest` is asked for
        features = compute_prefix(model.network, inputs, np.arange(len(images)))
        inputs = Inputs(images, labels, normalize, features=features, device=device)
    return ServerTrainer(model, inputs, shape)


def _load(plan: Plan, shape: tuple[int, int, int]) -> ImageSet:
    """The images of `[data.public]`, which must be given."""
    config = plan.config
    if config.data.public is None:
        who = repr(config.aggregate.rule) if plan.trusts else config.method.name
        raise ConfigError(
            f"{who} trains on {'trusted' if plan.trusts else 'public'} images at the server, and "
            "none are given",
            where=SECTION,
            hint="Add the section [data.public] with the keys of [data]: source, path, ...",
        )
    return load_public(config.data.public, Path(), shape, plan.key.at("public"))


def match_labels(public: ImageSet, classes: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """The labels of trusted images as numbers of the run's classes, by their names."""
    strange = sorted(set(public.classes) - set(classes))
    if strange or not len(public):
        raise ConfigError(
            f"trusted images have a class {strange[0]!r} that the sites do not have"
            if strange
            else "there is not a single trusted image",
            where=SECTION,
            hint="Trusted images carry the labels of the sites' classes.",
        )
    numbers = np.array([classes.index(name) for name in public.classes], np.int64)
    matched: npt.NDArray[np.int64] = numbers[public.labels]
    return matched
