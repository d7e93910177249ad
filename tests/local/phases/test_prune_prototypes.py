"""Pruning against the definition: nearest patches, one an image, sorted by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from vitrail import rng
from vitrail.config.schema import Prototypes
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.local.inputs import Inputs
from vitrail.local.phases import prune_prototypes as prune
from vitrail.local.phases.prune_prototypes import Prune, find_kept_prototypes
from vitrail.local.session import Site
from vitrail.models.build import build_backbone
from vitrail.models.flat import FlatModel, Region
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.network import Network

KEY = rng.derive_server_key(22)
DEPTH = 4


def a_network(classes=3, per_class=8):
    with rng.seed_torch(KEY.at("network")):
        backbone = build_backbone("small-cnn", width=8)
        head = ProtoHead(DEPTH, classes, Prototypes(per_class=per_class))
    return Network(backbone, nn.Identity(), head, cut=3)


def some_inputs(labels):
    labels = np.asarray(labels, np.int64)
    features = KEY.at("features").numpy().random((len(labels), 1, DEPTH, 3, 2), np.float32)
    images = np.zeros((len(labels), 8, 8, 3), np.uint8)
    return Inputs(images, labels, Normalize.from_name("unit", 3), features=features)


def a_site(network, inputs, rows):
    model = FlatModel(network)
    return Site("a", SiteRows("a", rows, rows[:0]), inputs, model, {}, KEY, Region(()))


LABELS = np.arange(30) % 3
ROWS = np.arange(30)


def literal(network, inputs, rows, nearest, own):
    found = []
    head = network.head
    for vector, owner in zip(head.vectors.detach().double(), head.owner.tolist(), strict=True):
        closest = []
        for row in rows:
            patches = torch.from_numpy(inputs.features[row, 0]).double().flatten(1).T
            closest.append((min(float(((p - vector) ** 2).sum()) for p in patches), row))
        chosen = [inputs.labels[row] for _, row in sorted(closest)[:nearest]]
        found.append(sum(label == owner for label in chosen) / len(chosen) >= own / nearest)
    return found


@pytest.mark.parametrize(("nearest", "own"), [(6, 3), (6, 1), (6, 6), (1, 1), (10, 4)])
def test_enough_of_the_nearest_patches_are_of_the_own_class(nearest, own):
    network, inputs = a_network(), some_inputs(LABELS)
    found = find_kept_prototypes(network, inputs, ROWS, nearest, own).tolist()
    assert found == literal(network, inputs, ROWS, nearest, own)
    if (nearest, own) == (6, 3):
        assert 0 < sum(found) < len(found)  # the case decides something


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_images_than_asked_for_are_all_looked_at(count):
    network, inputs = a_network(), some_inputs(LABELS)
    found = find_kept_prototypes(network, inputs, ROWS[:count], 6, 3).tolist()
    assert found == literal(network, inputs, ROWS[:count], 6, 3)


def test_without_images_nothing_changes():
    site = a_site(a_network(), some_inputs(LABELS), ROWS[:0])
    site.model.network.head.mask[3] = 0
    before = site.model.values.clone()
    assert Prune()(site, None) == {"pruned": pytest.approx(0.0)}
    assert torch.equal(site.model.values, before)


def test_chunks_change_nothing(monkeypatch):
    network, inputs = a_network(), some_inputs(LABELS)
    whole = find_kept_prototypes(network, inputs, ROWS, 6, 3)
    monkeypatch.setattr(prune, "CHUNK", 7)
    assert torch.equal(find_kept_prototypes(network, inputs, ROWS, 6, 3), whole)


def test_only_the_mask_changes_and_what_is_out_stays_out():
    network, inputs = a_network(), some_inputs(LABELS)
    site = a_site(network, inputs, ROWS)
    head = site.model.network.head
    expected = find_kept_prototypes(network, inputs, ROWS, 6, 3)
    out = int(torch.nonzero(expected)[0])
    head.mask[out] = 0  # would be kept, but was masked before
    before = {name: tensor.clone() for name, tensor in site.model.named.items()}
    figure = Prune()(site, None)["pruned"]
    assert figure == pytest.approx(1 - float(expected.double().mean()))
    expected[out] = False
    assert torch.equal(head.alive(), expected)
    for name, tensor in site.model.named.items():
        assert tensor.shape == before[name].shape
        assert (name == "head.mask") == (not torch.equal(tensor, before[name]))


def test_a_class_nobody_here_has_is_neither_kept_nor_pruned_by_this_site():
    labels = np.arange(30) % 2  # class 2 has no image
    network, inputs = a_network(), some_inputs(labels)
    site = a_site(network, inputs, ROWS)
    site.model.network.head.mask[23] = 0
    Prune(own=6)(site, None)
    alive = site.model.network.head.alive()
    assert not alive[:16].all() and alive[16:].tolist() == [True] * 7 + [False]
