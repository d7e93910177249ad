"""THE local loop: what a step is made of, in which order, and what may claim its slots."""

import pytest
import torch
import torch.nn.functional as F

from vitrail import rng
from vitrail.config import schema
from vitrail.errors import ConfigError
from vitrail.local.inputs import draw_epoch
from vitrail.local.loop import train
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.terms import Sam, Terms
from vitrail.models.flat import FlatModel
from vitrail.models.network import make_network

KEY = rng.derive_server_key(8)
BATCHES = [
    (torch.randn(4, 3, 16, 16, generator=KEY.at(i).torch()), torch.tensor([0, 1, 2, i % 3]))
    for i in range(3)
]


def model():
    options = schema.Model(backbone="resnet8", width=8)
    return FlatModel(make_network(options, "linear", 3, 3, KEY)[0])


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_flat_steps_are_those_of_torch(name):
    flat, plain = model(), model().network.train()
    settings = OptimizerSettings(name, 0.03, 0.9, 0.01, {"head": (0.3, 0.0)})
    body = {"params": list(plain.backbone.parameters()), "lr": 0.03, "weight_decay": 0.01}
    head = {"params": list(plain.head.parameters()), "lr": 0.3, "weight_decay": 0.0}
    optimizer = (
        torch.optim.SGD([body, head], lr=1.0, momentum=0.9)
        if name == "sgd"
        else torch.optim.Adam([body, head])
    )
    result = train(flat, BATCHES, Terms(), settings)
    losses = []
    for x, y in BATCHES:
        optimizer.zero_grad()
        loss = F.cross_entropy(plain.rest(x)["logits"], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for spec in flat.layout.specs:
        torch.testing.assert_close(
            flat.named[spec.name], plain.state_dict()[spec.name], rtol=0, atol=1e-6
        )
    assert (result.steps, result.images) == (3, 12)
    assert result.loss == pytest.approx(sum(losses) / 3, rel=1e-5)


def test_loss_terms_pulls_and_clipping_come_in_that_order():
    flat, seen = model(), []
    settings = OptimizerSettings(lr=1e-9)
    terms = Terms(
        loss=(lambda outputs, batch: 5.0 * outputs["logits"].square().sum(),),
        pull=(lambda m: seen.append(m.grads.clone()), lambda m: m.grads.add_(100.0)),
        clip=2.0,
    )
    train(flat, BATCHES[:1], terms, settings)
    other = model()
    x, y = BATCHES[0]
    with other.training(None):
        logits = other.network.rest(x)["logits"]
        (F.cross_entropy(logits, y) + 5.0 * logits.square().sum()).backward()
    torch.testing.assert_close(seen[0], other.grads)
    whole = other.grads + 100.0
    torch.testing.assert_close(flat.grads, whole * (2.0 / whole.norm()))


def test_sam_takes_the_gradient_uphill_and_moves_statistics_once():
    flat, twin = model(), model()
    x, y = BATCHES[0]
    before = flat.values.clone()
    train(flat, BATCHES[:1], Terms(gradient=Sam(0.3)), OptimizerSettings(lr=0.1))
    weights = twin.values[: twin.layout.trainable]
    with twin.training(None):
        F.cross_entropy(twin.network.rest(x)["logits"], y).backward()
        statistics = twin.values[twin.layout.trainable :].clone()
        weights.add_(0.3 * twin.grads / twin.grads.norm())
        twin.grads.zero_()
        F.cross_entropy(twin.network.rest(x)["logits"], y).backward()
    torch.testing.assert_close(flat.grads, twin.grads, rtol=1e-4, atol=1e-6)
    expected = before[: len(weights)] - 0.1 * twin.grads
    torch.testing.assert_close(flat.values[: len(weights)], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(flat.values[len(weights) :], statistics, rtol=0, atol=1e-7)


def test_a_slot_is_claimed_once():
    with pytest.raises(ConfigError, match="gradient"):
        Terms(gradient=Sam(0.1)).combine(Terms(gradient=Sam(0.2)))
    with pytest.raises(ConfigError, match="clip"):
        Terms(clip=1.0).combine(Terms(clip=2.0))
    both = Terms(clip=1.0).combine(Terms(gradient=Sam(0.2)))
    assert both.clip == 1.0 and both.gradient == Sam(0.2)


def test_no_batches_are_no_steps():
    flat = model()
    before = flat.values.clone()
    result = train(flat, [], Terms(), OptimizerSettings())
    assert (result.steps, result.images) == (0, 0) and result.loss != result.loss
    assert torch.equal(flat.values, before)


@pytest.mark.parametrize("count, size", [(0, 4), (1, 4), (4, 4), (5, 4), (9, 4), (6, 4), (3, 1)])
def test_an_epoch_holds_every_image_once_and_no_image_alone(count, size):
    batches = draw_epoch(count, size, KEY.torch())
    assert sorted(torch.cat(batches).tolist() if batches else []) == list(range(count))
    if size > 1 and count > 1:
        assert all(2 <= len(b) <= size + 1 for b in batches)


def test_the_users_optimizer_wins_and_names_an_unknown_part():
    own = OptimizerSettings("adam", 0.1, parts={"head": (1.0, 0.5)})
    user = schema.Optimizer(momentum=0.5, parts={"head": schema.PartOptimizer(weight_decay=0.0)})
    found = own.override_with(user)
    assert (found.name, found.lr, found.momentum) == ("adam", 0.1, 0.5)
    assert found.of("head") == (1.0, 0.0) and found.of("backbone") == (0.1, 0.0)
    assert own.override_with(schema.Optimizer(lr=0.2)).of("head") == (0.2, 0.0)
    decayed = own.override_with(schema.Optimizer(weight_decay=0.3))
    assert decayed.of("head") == (1.0, 0.3) and decayed.of("backbone") == (0.1, 0.3)
    assert own.override_with(schema.Optimizer(weight_decay=0.0)).of("head") == (1.0, 0.0)
    named = {"head": schema.PartOptimizer(weight_decay=0.7)}
    assert own.override_with(schema.Optimizer(weight_decay=0.3, parts=named)).of("head") == (
        1.0,
        0.7,
    )
    with pytest.raises(ConfigError, match="Did you mean 'head'"):
        own.override_with(schema.Optimizer(parts={"haed": schema.PartOptimizer(lr=1.0)}))
