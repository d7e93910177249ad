"""A network tied to flat buffers is the same network, and receiving one is one copy."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail import rng
from vitrail.config.schema import Model
from vitrail.models.backbone import BACKBONES
from vitrail.models.flat import FlatModel, keep_statistics
from vitrail.models.network import make_network

KEY = rng.derive_server_key(2)


def network(name, norm="average", frozen=False):
    return make_network(
        Model(backbone=name, width=8, norm=norm, frozen=frozen), "linear", 3, 3, KEY
    )[0]


def batch(size=64):
    return torch.randn(4, 3, size, size, generator=KEY.at("x").torch()), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize("norm", ["average", "group"])
@pytest.mark.parametrize("name", BACKBONES)
def test_outputs_gradients_and_resetting(name, norm):
    plain = network(name, norm)
    flat = FlatModel(copy.deepcopy(plain))
    x, y = batch()
    plain.train()
    F.cross_entropy(plain(x), y).backward()
    with flat.training(None):
        F.cross_entropy(flat.network(x), y).backward()
    first = {n: p.grad for n, p in plain.named_parameters()}
    for spec, at in zip(flat.layout.specs, flat.layout.offsets, strict=True):
        here = flat.values[at : at + spec.size].view(spec.shape)
        assert torch.equal(here, plain.state_dict()[spec.name]), spec.name
        if spec.trainable:
            assert torch.equal(flat.grads[at : at + spec.size].view(spec.shape), first[spec.name])
    assert sum(s.size for s in flat.layout.specs) == flat.layout.size
    assert torch.equal(plain.eval()(x), flat.network.eval()(x))
    # Writing the flat buffer is receiving a model: module and buffer are one memory.
    flat.values.zero_()
    assert not flat.network(x).any()
    flat.write({n: t for n, t in plain.state_dict().items() if n in flat.named})
    assert torch.equal(plain(x), flat.network(x))
    counters = {n: b for n, b in flat.network.named_buffers() if n.endswith("num_batches_tracked")}
    assert bool(counters) == any(isinstance(m, nn.BatchNorm2d) for m in plain.modules())
    assert all(b == 1 for b in counters.values())
    flat.reset_counters()
    assert all(b == 0 for b in counters.values())


@pytest.mark.parametrize("name", ["densenet121", "efficientnet-lite0", "resnet18"])
@pytest.mark.parametrize("how", ["all", "stage", "parts"])
def test_frozen_statistics_do_not_move_in_training_mode(name, how):
    stages = [stage for stage, _ in network(name).backbone.stages()]
    middle = stages[len(stages) // 2]
    net = network(name, frozen={"all": True, "stage": middle, "parts": False}[how])
    flat = FlatModel(net)
    before = {n: t.clone() for n, t in net.state_dict().items()}
    x, y = batch()
    with flat.training(("head",) if how == "parts" else None):
        F.cross_entropy(net(x), y).backward()
    moved = {n for n, t in net.state_dict().items() if not torch.equal(t, before[n])}
    assert not any(net.is_frozen(n) for n in moved)
    assert bool(moved) == (how == "stage")  # the free stages after the cut do move
    assert flat.grads[flat.layout.part("head")].any()


def test_a_whole_frozen_backbone_stays_in_evaluation_mode_and_the_head_changes():
    net = network("resnet8", frozen=True)
    for mode in (True, False, True):
        net.train(mode)
        assert net.training is net.head.training is mode
        assert not any(module.training for module in net.backbone.modules())


def test_training_some_parts_gives_the_others_no_gradient_and_restores():
    flat = FlatModel(network("resnet8"))
    x, y = batch(16)
    wanted = {n: p.requires_grad for n, p in flat.network.named_parameters()}
    with pytest.raises(KeyError), flat.training(("head",)):
        assert not flat.network.backbone.training and flat.network.head.training
        F.cross_entropy(flat.network(x), y).backward()
        raise KeyError
    assert {n: p.requires_grad for n, p in flat.network.named_parameters()} == wanted
    assert not flat.network.training and all(wanted.values())
    assert not flat.grads[flat.layout.part("backbone")].any()
    assert flat.grads[flat.layout.part("head")].any()
    assert flat.layout.part("neck") == slice(0, 0)


def test_a_region_of_scattered_tensors_adds_where_it_should():
    flat = FlatModel(network("resnet8"))
    names = [s.name for s in flat.layout.specs if s.kind == "weight"]
    region = flat.layout.region(names)
    value = torch.arange(1.0, region.size + 1)
    before = flat.values.clone()
    region.add_(flat.values, value, 0.5)
    at = 0
    for spec in flat.layout.specs:
        change = flat.named[spec.name] - flat.layout.views(before)[spec.name]
        if spec.name in names:
            expected = 0.5 * value[at : at + spec.size].view(spec.shape)
            torch.testing.assert_close(change, expected, atol=1e-3, rtol=1e-6)
            at += spec.size
        else:
            assert not change.any()
    assert at == region.size == len(region.of(flat.values))
    empty = flat.layout.region([])
    assert empty.size == 0 and empty.of(flat.values).numel() == 0


def test_statistics_kept_trains_on_batch_statistics_and_moves_none():
    norm = nn.BatchNorm2d(3)
    x = torch.randn(4, 3, 5, 5, generator=KEY.torch())
    expected = nn.BatchNorm2d(3)(x)
    with keep_statistics(norm):
        assert torch.equal(norm(x), expected)
    assert (
        norm.num_batches_tracked == 0 and not norm.running_mean.any() and norm.track_running_stats
    )
