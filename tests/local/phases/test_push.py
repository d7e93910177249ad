"""Push against a triple loop over prototypes, images and positions."""

import numpy as np
import pytest
import torch
from torch import nn

from vitrail import rng
from vitrail.config.schema import Model, Prototypes
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError
from vitrail.local.inputs import Inputs
from vitrail.local.phases.push import DISTANCE, PLACE, ROW, Push, find_nearest_patches
from vitrail.local.session import Site
from vitrail.models.build import build_backbone
from vitrail.models.flat import FlatModel, Region
from vitrail.models.heads.protopnet import ProtoHead, squared_distances
from vitrail.models.network import Network, make_network

KEY = rng.derive_server_key(21)
DEPTH, SIDE = 6, 3


def a_network(classes=4, per_class=3, depth=DEPTH):
    """Prototypes right on top of cached features, so that the patches are known."""
    with rng.seed_torch(KEY.at("network")):
        backbone = build_backbone("small-cnn", width=8)
        head = ProtoHead(depth, classes, Prototypes(per_class=per_class))
    return Network(backbone, nn.Identity(), head, cut=3)


def some_inputs(labels, features=None, depth=DEPTH, side=SIDE):
    labels = np.asarray(labels, np.int64)
    if features is None:
        shape = (len(labels), 1, depth, side, side)
        features = KEY.at("features").numpy().random(shape, np.float32)
    images = np.zeros((len(labels), 8, 8, 3), np.uint8)
    return Inputs(images, labels, Normalize("unit", (0.0,) * 3, (1.0,) * 3), features=features)


LABELS = [0, 2, 1, 0, 2, 2, 0, 1, 0, 2, 1, 0]  # class 3 has no image
ROWS = np.arange(len(LABELS))


def literal(network, inputs, rows):
    """For each prototype: row, place, distance; -1 where its class has no image."""
    found = []
    head = network.head
    for vector, owner in zip(head.vectors.detach(), head.owner, strict=True):
        best = (float("inf"), -1, 0)
        for row in rows:
            if inputs.labels[row] != int(owner):
                continue
            patches = inputs.features[row, 0].reshape(vector.numel(), -1).astype(np.float64)
            for place in range(patches.shape[1]):
                away = sum((float(v) - patches[d, place]) ** 2 for d, v in enumerate(vector))
                if away < best[0]:
                    best = (away, int(row), place)
        found.append(best)
    return found


def same(found, expected):
    assert found.row.tolist() == [row for _, row, _ in expected]
    assert [p for p, f in zip(found.place.tolist(), found.grounded, strict=True) if f] == [
        place for _, row, place in expected if row >= 0
    ]
    distances = torch.tensor([float(distance) for distance, _, _ in expected])
    torch.testing.assert_close(found.distance, distances, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1].copy(), ROWS[3:9], ROWS[:1], ROWS[:0]])
def test_the_nearest_patch_of_the_own_class(rows):
    network, inputs = a_network(), some_inputs(LABELS)
    before = network.head.vectors.detach().clone()
    found = find_nearest_patches(network, inputs, rows)
    expected = literal(network, inputs, rows)
    same(found, expected)
    for j, (_, row, place) in enumerate(expected):
        patch = before[j]
        if row >= 0:
            patch = torch.from_numpy(inputs.features[row, 0].reshape(DEPTH, -1)[:, place])
        assert torch.equal(found.vector[j], patch)
    assert torch.equal(network.head.vectors, before)  # looking changes nothing


def test_an_absent_class_is_not_grounded_and_keeps_its_prototypes():
    network = a_network()
    found = find_nearest_patches(network, some_inputs(LABELS), ROWS)
    assert found.grounded.tolist() == [True] * 9 + [False] * 3
    assert torch.equal(found.vector[9:], network.head.vectors[9:].detach())
    assert (found.vector != 0).any(1).all()  # the usual code writes zeros here


@pytest.mark.parametrize("chunk", [1, 2, 5, 12, 1000])
def test_chunks_change_nothing(chunk):
    network, inputs = a_network(), some_inputs(LABELS)
    whole, parts = (
        find_nearest_patches(network, inputs, ROWS),
        find_nearest_patches(network, inputs, ROWS, chunk),
    )
    assert torch.equal(whole.row, parts.row) and torch.equal(whole.place, parts.place)
    assert torch.equal(whole.vector, parts.vector)
    torch.testing.assert_close(whole.distance, parts.distance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2, 256])
def test_of_equal_patches_the_first_wins(chunk):
    """Quarters are exact in float32, so equal patches have equal distances to the bit."""
    network = a_network(classes=2, per_class=1)
    features = np.full((4, 1, DEPTH, SIDE, SIDE), 4.0, np.float32)
    features[2, 0, :, 1, 1] = features[2, 0, :, 2, 0] = features[3, 0, :, 0, 0] = 0.25
    with torch.no_grad():
        network.head.vectors.copy_(torch.tensor([[0.5] * DEPTH, [4.0] * DEPTH]))
    inputs = some_inputs([0, 1, 0, 0], features)
    found = find_nearest_patches(network, inputs, np.arange(4), chunk)
    assert found.row.tolist() == [2, 1] and found.place.tolist() == [4, 0]
    other = find_nearest_patches(network, inputs, np.array([3, 2, 1, 0]), chunk)
    assert other.row.tolist() == [3, 1] and other.place.tolist() == [0, 0]


def test_a_broken_patch_is_never_the_nearest():
    network = a_network(classes=1, per_class=4)
    inputs = some_inputs([0, 0, 0])
    inputs.features[1, 0, :, 2, 1] = np.nan
    inputs.features[2, 0] = np.inf
    found = find_nearest_patches(network, inputs, np.arange(3))
    assert found.grounded.all() and found.vector.isfinite().all()
    assert found.distance.isfinite().all()
    same(found, literal(network, inputs, np.arange(3)))
    inputs.features[:] = np.nan  # a network that came apart has nothing to show
    assert not find_nearest_patches(network, inputs, np.arange(3)).grounded.any()


def a_site(network, inputs, train, push=None):
    rows = SiteRows("a", np.asarray(train), np.arange(0), push)
    model = FlatModel(network)
    return Site("a", rows, inputs, model, {}, KEY.at("site"), Region(()))


def test_a_real_push_makes_prototypes_patches_of_the_sites_own():
    site = a_site(a_network(), some_inputs(LABELS), ROWS)
    before = site.model.values.clone()
    metrics = Push()(site, None)
    assert metrics == {"grounded": pytest.approx(0.75)}
    head, features = site.model.network.head, torch.from_numpy(site.inputs.features)
    for j in range(9):
        row, place = int(site.state[ROW][j]), int(site.state[PLACE][j])
        assert LABELS[row] == j // 3
        maps = squared_distances(features[row], head.vectors.detach())[0]
        assert float(maps[j].flatten()[place]) == pytest.approx(0.0, abs=1e-5)
        assert float(site.state[DISTANCE][j]) > 0  # how far it had to go
    assert site.state[ROW][9:].tolist() == [-1] * 3
    start = site.model.layout.views(before)["head.vectors"]
    assert torch.equal(head.vectors[9:].detach(), start[9:])
    again = Push()(site, None)
    assert again == metrics and site.state[DISTANCE][:9].max() < 1e-5
    moved = {
        name
        for name, tensor in site.model.layout.views(before).items()
        if not torch.equal(tensor, site.model.named[name])
    }
    assert moved == {"head.vectors"}


def test_a_push_for_pictures_leaves_the_model_alone():
    site = a_site(a_network(), some_inputs(LABELS), ROWS)
    before = site.model.values.clone()
    assert Push(real=False)(site, None) == {"grounded": pytest.approx(0.75)}
    assert torch.equal(site.model.values, before)
    assert (
        site.state[ROW].tolist()[:9]
        == find_nearest_patches(site.model.network, site.inputs, ROWS).row.tolist()[:9]
    )


def test_the_push_looks_among_the_push_images():
    site = a_site(a_network(), some_inputs(LABELS), ROWS[:6], push=ROWS[6:])
    Push()(site, None)
    assert set(site.state[ROW].tolist()) <= {-1, *range(6, 12)}


def test_a_site_without_push_images_keeps_everything():
    site = a_site(a_network(), some_inputs(LABELS), ROWS, push=ROWS[:0])
    before = site.model.values.clone()
    assert Push()(site, None) == {"grounded": 0.0}
    assert torch.equal(site.model.values, before)


def test_a_whole_network_is_searched_in_evaluation_mode():
    """Images through backbone and add-on layers; BatchNorm must not see the search."""
    model = Model(backbone="resnet8", width=8, prototypes=Prototypes(per_class=2, depth=8))
    network = make_network(model, "protopnet", 3, 2, KEY.at("whole"))[0]
    images = KEY.at("pixels").numpy().integers(0, 256, (6, 16, 16, 3), np.uint8)
    labels = np.array([0, 1, 0, 1, 0, 1])
    inputs = Inputs(images, labels, Normalize("unit", (0.0,) * 3, (1.0,) * 3))
    network.train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = find_nearest_patches(network, inputs, np.arange(6), 4)
    assert all(torch.equal(before[n], t) for n, t in network.state_dict().items())
    with torch.no_grad():
        z = network.features(network.prefix(inputs.plain(np.arange(6))))
        maps = squared_distances(z, network.head.vectors)
    for j in range(4):
        own = [r for r in range(6) if labels[r] == j // 2]
        assert int(found.row[j]) in own
        assert float(found.distance[j]) == pytest.approx(float(maps[own, j].min()), abs=1e-5)


def test_a_model_without_prototypes_is_refused_in_a_sentence():
    network = make_network(Model(width=8), "linear", 3, 2, KEY)[0]
    with pytest.raises(ConfigError, match="has none") as err:
        find_nearest_patches(network, some_inputs([0]), ROWS[:1])
    assert "protopnet" in str(err.value)
