"""A site at its desk: a trained model, what it received, its images and its secret."""

import numpy as np
import pytest
import torch

from vitrail.config.load import parse
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.plan import make_plan
from vitrail.local.inputs import Inputs
from vitrail.local.session import Site
from vitrail.models.flat import FlatModel
from vitrail.release import Update
from vitrail.rng import Key


class Desk:
    """A site of one turn, and the update that would leave without a defense."""

    def __init__(self, plan, network, labels, classes, secret):
        source = np.random.default_rng(3)
        self.plan = plan
        inputs = Inputs(
            images=source.integers(0, 256, (len(labels), 16, 16, 3), dtype=np.uint8),
            labels=np.array(labels, dtype=np.int64),
            normalize=Normalize.of(plan.config, 3),
        )
        model = FlatModel(network)
        received = model.values.clone()
        trained = model.layout.trainable
        model.values[:trained] += 0.02 * torch.randn(
            trained, generator=torch.Generator().manual_seed(1)
        )
        rows = SiteRows("site-00", np.arange(len(labels)), np.arange(0))
        stage = plan.stages[-1]
        key = Key(secret).at("round", 1)
        self.site = Site("site-00", rows, inputs, model, {}, key, stage.shared, received)
        self.ctx = plan.context(1, 1)
        names = [f.name for f in stage.schema.up if f.name.startswith("model/")]
        self.update = Update("site-00", 1, "train", {n: model.named[n[6:]].clone() for n in names})

    def passed(self, defense, tensors=None):
        """What leaves through a defense, and its figures."""
        update = self.update if tensors is None else Update("site-00", 1, "train", tensors)
        found, figures = defense.apply(update, self.site, self.ctx)
        return found.tensors, figures


@pytest.fixture
def desk(tiny_config, tmp_path):
    """A function: a desk with some sections of the configuration changed."""

    def make(labels=(0, 0, 1, 1, 2, 2, 0, 1), secret=b"a secret of the site", **changes):
        loaded = parse(tiny_config(**changes), tmp_path)
        plan, network = make_plan(loaded, ("a", "b", "c"), 3)
        return Desk(plan, network, labels, 3, secret)

    return make
