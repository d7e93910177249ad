"""Phases that leave something at rest end where training everything else anew would."""

import numpy as np
import pytest
import torch

from vitrail import rng
from vitrail.config.schema import Model, Prototypes, Subspaces
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.local.inputs import Inputs, draw_epoch
from vitrail.local.loop import train
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.class_spans import Spans
from vitrail.local.phases.phase import Fit
from vitrail.local.session import Context, Site
from vitrail.local.terms import Terms
from vitrail.models import HEADS, FlatModel, Network
from vitrail.models.build import build_backbone
from vitrail.models.flat import Region

KEY = rng.derive_server_key(31)
COUNT, CLASSES = 11, 3
SETTINGS = OptimizerSettings("adam", 0.02)


def model(head):
    options = Model(
        prototypes=Prototypes(per_class=2, depth=6), subspaces=Subspaces(depth=6, dimension=2)
    )
    with rng.seed_torch(KEY.at("network")):
        backbone = build_backbone("small-cnn", width=8)
        neck, top = HEADS[head](backbone.channels, CLASSES, options)
    return FlatModel(Network(backbone, neck, top, cut=len(backbone.stages())))


def site(flat, rows=COUNT):
    channels = flat.network.backbone.channels
    features = KEY.at("x").numpy().random((COUNT, 1, channels, 3, 3), np.float32)
    labels = np.arange(COUNT) % CLASSES
    images = np.zeros((COUNT, 8, 8, 3), np.uint8)
    inputs = Inputs(images, labels, Normalize.from_name("unit", 3), features=features)
    every = np.arange(rows)
    return Site("a", SiteRows("a", every, every), inputs, flat, {}, KEY.at("turn"), Region(()))


def context():
    return Context(1, "", 1, CLASSES, 1, 4, SETTINGS, None, KEY)


@pytest.mark.parametrize("head", ["protopnet", "tesnet", "fedgrasp"])
@pytest.mark.parametrize("parts", [("head",), ("prototypes", "head")])
def test_what_is_at_rest_is_computed_once_and_changes_nothing(head, parts):
    quick, slow = model(head), model(head)
    before = quick.values.clone()
    figures = Fit("last", parts, 3)(site(quick), context())
    there = site(slow)
    order = there.key.at("last", "batches").torch()
    rows = [at for _ in range(3) for at in draw_epoch(COUNT, 4, order)]
    batches = [(there.inputs.plain(at.numpy()), there.inputs.targets(at.numpy())) for at in rows]
    result = train(slow, batches, Terms(), SETTINGS, parts, slow.network.rest)
    assert not torch.equal(quick.values, before)
    torch.testing.assert_close(quick.values, slow.values, rtol=1e-4, atol=1e-5)
    assert figures["train_loss"] == pytest.approx(result.loss, rel=1e-4)


@pytest.mark.parametrize("head", ["protopnet", "tesnet", "fedgrasp"])
def test_outputs_are_what_is_measured_and_judged(head):
    network = model(head).network
    z = network.features(site(model(head)).inputs.plain(np.arange(4)))
    measured = network.head.measure(z)
    assert "logits" not in measured and all(len(t) == 4 for t in measured.values())
    with torch.no_grad():
        network.head.weight.mul_(3)  # only the logits may notice
    again, judged = network.head.measure(z), network.head(z)
    assert all(torch.equal(again[name], measured[name]) for name in measured)
    torch.testing.assert_close(
        judged["logits"], torch.nn.functional.linear(measured["scores"], network.head.weight)
    )


def test_a_site_without_images_takes_no_step():
    flat = model("fedgrasp")
    before = flat.values.clone()
    here = site(flat, rows=0)
    figures = Fit("last", ("head",), 2)(here, context())
    assert torch.equal(flat.values, before) and np.isnan(figures["train_loss"])
    assert here.result.steps == 0


def test_frames_span_what_the_patches_of_their_class_do():
    """No subspace of that size holds more of the unit patches; a class without images rests."""
    flat = model("fedgrasp")
    there = site(flat, rows=2)  # an image of class 0, one of class 1, none of class 2
    before = flat.values.clone()
    received = flat.named["head.frames"].clone()
    with torch.no_grad():
        z = flat.network.features(there.inputs.plain(np.arange(2))).double()
    Spans()(there, context())
    frames = flat.named["head.frames"]
    for label in (0, 1):
        patches = torch.nn.functional.normalize(z[label].flatten(1), dim=0)
        held = (frames[label].double().mT @ patches).square().sum()
        most = torch.linalg.svdvals(patches)[:2].square().sum()
        torch.testing.assert_close(held, most, rtol=1e-5, atol=0)
    assert torch.equal(frames[2], received[2])
    frames.copy_(received)
    assert torch.equal(flat.values, before)  # nothing but frames moved
