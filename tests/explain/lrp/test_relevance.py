"""Relevance propagation through whole networks: against a second engine written out by hand,
conserved layer by layer, and leaving nothing behind."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.errors import ConfigError
from vitrail.explain.attribution import Settings, attribute
from vitrail.explain.lrp import layer_rules as lrp_layers
from vitrail.explain.lrp.propagation_rules import FLAT, Z_PLUS, propagate, stabilize
from vitrail.models import build
from vitrail.models.backbones.layers import Sum
from vitrail.rng import derive_server_key, seed_torch

SIZES = {
    "small-cnn": 16,
    "lenet": 32,
    "resnet8": 16,
    "resnet18": 32,
    "resnet50": 32,
    "densenet121": 32,
    "vgg19": 32,
    "efficientnet-lite0": 32,
}
TARGETS = torch.tensor([0, 3, 1])


def trained(name, norm="batch", seed=1):
    """A narrow backbone as a classifier, its BatchNorm statistics those of random images."""
    net = build(name, 4, width=8, norm=norm, key=derive_server_key(seed)).train()
    with seed_torch(derive_server_key(seed).at("statistics")), torch.no_grad():
        for _ in range(4):
            net(torch.randn(4, 3, SIZES[name], SIZES[name]))
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
    return net.eval()


def images(name, count=3, seed=0):
    size = SIZES[name]
    return torch.randn(count, 3, size, size, generator=derive_server_key(seed).at("images").torch())


# A second engine for residual networks of basic blocks, in float64, with BatchNorm merged first
# and every rule written with the transposed convolution.


def merged(conv, norm):
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return (
        (conv.weight * scale[:, None, None, None]).detach(),
        (norm.bias - norm.running_mean * scale).detach(),
    )


def step(conv, norm, x):
    weight, bias = merged(conv, norm)
    return F.conv2d(x, weight, bias, conv.stride, conv.padding)


def back_plus(conv, norm, x, relevance):
    weight, bias = merged(conv, norm)
    parts = [(x.clamp(min=0), weight.clamp(min=0)), (x.clamp(max=0), weight.clamp(max=0))]
    z = bias.clamp(min=0)[None, :, None, None] + sum(
        F.conv2d(p, w, None, conv.stride, conv.padding) for p, w in parts
    )
    share = relevance / stabilize(z)
    return sum(
        p * torch.nn.grad.conv2d_input(p.shape, w, share, conv.stride, conv.padding)
        for p, w in parts
    )


def back_flat(conv, x, relevance):
    ones, weight = torch.ones_like(x), torch.ones_like(conv.weight)
    share = relevance / stabilize(F.conv2d(ones, weight, None, conv.stride, conv.padding))
    return torch.nn.grad.conv2d_input(x.shape, weight, share, conv.stride, conv.padding)


def back_pool(x, relevance):
    """Windows 3x3, stride 2: the first largest value of a window takes its relevance."""
    found = torch.zeros_like(x)
    for n, c, r, w in torch.cartesian_prod(*[torch.arange(s) for s in relevance.shape]).tolist():
        top, left = max(2 * r - 1, 0), max(2 * w - 1, 0)
        window = x[n, c, top : 2 * r + 2, left : 2 * w + 2]
        y, z = divmod(int(window.argmax()), window.shape[1])
        found[n, c, top + y, left + z] += relevance[n, c, r, w]
    return found


def resnet_by_hand(net, x, targets):
    stem = step(net.conv1, net.bn1, x).relu()
    z, kept = net.maxpool(stem), []
    for layer in (net.layer1, net.layer2, net.layer3, net.layer4):
        for block in layer:
            inner = step(block.conv1, block.bn1, z).relu()
            branch = step(block.conv2, block.bn2, inner)
            plain = isinstance(block.downsample, nn.Identity)
            short = z if plain else step(block.downsample[0], block.downsample[1], z)
            kept.append((block, z, inner, branch, short, plain))
            z = (branch + short).relu()
    pooled = z.mean((2, 3))
    logits = pooled @ net.fc.weight.T + net.fc.bias
    seed = F.one_hot(targets, logits.shape[1]).to(x)
    relevance = pooled * ((seed / stabilize(logits)) @ net.fc.weight)
    relevance = z / (z.shape[2] * z.shape[3]) * (relevance / stabilize(pooled))[:, :, None, None]
    for block, before, inner, branch, short, plain in reversed(kept):
        share = relevance / stabilize(branch + short)
        upper = back_plus(block.conv2, block.bn2, inner, branch * share)
        upper = back_plus(block.conv1, block.bn1, before, upper)
        lower = short * share
        if not plain:
            lower = back_plus(block.downsample[0], block.downsample[1], before, lower)
        relevance = upper + lower
    if isinstance(net.maxpool, nn.MaxPool2d):
        relevance = back_pool(stem, relevance)
    return back_flat(net.conv1, x, relevance).sum(1).detach()


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_a_residual_network_as_computed_by_hand(name):
    net, x = trained(name).double(), images(name).double()
    found = attribute("lrp", net, x, TARGETS)
    torch.testing.assert_close(found, resnet_by_hand(net, x, TARGETS), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", SIZES)
def test_every_layer_conserves_relevance_but_for_what_its_bias_keeps(name, monkeypatch):
    net, x = trained(name).double(), images(name).double()
    seen, biases = [], []

    def watched(rule, relevance, x, weight, bias, layer):
        found = propagate(rule, relevance, x, weight, bias, layer)
        kept = bias_share(rule, relevance, x, weight, bias, layer)
        out, back = relevance.flatten(1).sum(1), found.flatten(1).sum(1)
        biases.append(kept)
        scale = relevance.abs().flatten(1).sum(1) + 1e-12
        seen.append((rule.name, float(((back + kept - out) / scale).abs().max())))
        return found

    monkeypatch.setattr(lrp_layers, "propagate", watched)
    found = attribute("lrp", net, x, TARGETS)
    assert found.isfinite().all() and {"flat", "z+", "epsilon"} == {rule for rule, _ in seen}
    assert max(error for _, error in seen) < 1e-4, max(seen, key=lambda s: s[1])
    # and over the whole network, residual sums and forks included: what started is what arrives
    # and what biases kept, so that nothing is doubled where paths meet or part
    arrived = found.sum((1, 2)) + torch.stack(biases).sum(0)
    torch.testing.assert_close(arrived, torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-4)


def bias_share(rule, relevance, x, weight, bias, layer):
    """sum_j b_j / z_j R_j, plus what the stabilizer takes; a unit without input keeps all."""
    with torch.no_grad():
        if rule is FLAT:
            z = layer(torch.ones_like(x), torch.ones_like(weight), None)
            return (relevance * (1 - z / stabilize(z))).flatten(1).sum(1)
        if rule is Z_PLUS:
            inputs = layer(x.clamp(min=0), weight.clamp(min=0), None)
            inputs = inputs + layer(x.clamp(max=0), weight.clamp(max=0), None)
            shift = None if bias is None else bias.clamp(min=0)
        else:
            inputs, shift = layer(x, weight, None), bias
        z = inputs
        if shift is not None:
            places = [1] * (inputs.dim() - 2)
            z = z + shift.reshape(*shift.shape, *places)
        return (relevance * (1 - inputs / stabilize(z))).flatten(1).sum(1)


@pytest.mark.parametrize("name", ["small-cnn", "vgg19"])
def test_without_biases_all_relevance_arrives(name):
    """Where every convolution meets a ReLU; before a residual sum an output can be negative with
    nothing that speaks for it, and z+ then has nobody to hand its relevance to."""
    net = trained(name)
    for module in net.modules():
        if getattr(module, "bias", None) is not None:
            module.bias.data.zero_()
    net, x = net.double(), images(name).double()
    found = attribute("lrp", net, x, TARGETS)
    torch.testing.assert_close(
        found.sum((1, 2)), torch.ones(3, dtype=torch.float64), rtol=1e-3, atol=1e-3
    )


def test_relevance_starts_with_one_or_with_the_logit(network, picture):
    net, x = network("linear"), picture(3)
    targets = torch.tensor([0, 2, 1])
    with torch.no_grad():
        logits = net(x).gather(1, targets[:, None])[:, :, None]
    one = attribute("lrp", net, x, targets)
    own = attribute("lrp", net, x, targets, Settings(start="logit"))
    torch.testing.assert_close(own, one * logits, rtol=1e-4, atol=1e-7)


def test_each_image_is_attributed_to_its_own_label_only(network, picture):
    net, x = network("linear", backbone="resnet8"), picture(3)
    together = attribute("lrp", net, x, torch.tensor([0, 2, 1]))
    for row, label in enumerate((0, 2, 1)):
        alone = attribute("lrp", net, x[row : row + 1], torch.tensor([label]))
        other = attribute("lrp", net, x[row : row + 1], torch.tensor([(label + 1) % 3]))
        torch.testing.assert_close(together[row], alone[0], rtol=1e-4, atol=1e-6)
        assert not torch.allclose(together[row], other[0], rtol=1e-2)


@pytest.mark.parametrize("name", SIZES)
def test_nothing_is_left_on_the_model(name):
    net, x = trained(name).train(), images(name)
    net.stage1.eval() if hasattr(net, "stage1") else None
    modes = [m.training for m in net.modules()]
    inside = [set(m.__dict__) for m in net.modules()]
    before = {n: t.clone() for n, t in net.state_dict().items()}
    wanted = [p.requires_grad for p in net.parameters()]
    found = attribute("lrp", net, x, TARGETS)
    assert not found.requires_grad and not x.requires_grad
    assert modes == [m.training for m in net.modules()]
    assert inside == [set(m.__dict__) for m in net.modules()]
    assert wanted == [p.requires_grad for p in net.parameters()]
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())


class Standardized(nn.Conv2d):
    """A convolution whose weights are not those it has."""

    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)


class Twice(nn.Module):
    """A convolution's output, bare and normalized."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.sum = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), Sum()

    def forward(self, x):
        y = self.conv(x)
        return self.sum(self.norm(y), y)


class Odd(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.conv, self.middle = nn.Conv2d(3, 4, 3), middle
        self.pool, self.flat, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)

    def forward(self, x):
        z = self.conv(x)
        z = z.sigmoid() if self.middle is None else self.middle(z)
        return self.fc(self.flat(self.pool(z)))


@pytest.mark.parametrize(
    ("middle", "named"),
    [
        (None, "operation 'sigmoid'"),
        (nn.LocalResponseNorm(2), "LocalResponseNorm"),
        (nn.InstanceNorm2d(4), r"InstanceNorm2d \(middle\)"),
        (nn.BatchNorm2d(4, track_running_stats=False), "without running statistics"),
        (Standardized(4, 4, 1), r"Standardized \(middle\)"),
        (Twice(), "normalized in one place and used in another"),
    ],
)
def test_what_no_rule_covers_is_named_and_the_model_comes_back(middle, named):
    net = Odd(middle)
    before = [set(m.__dict__) for m in net.modules()]
    with pytest.raises(ConfigError, match=named):
        attribute("lrp", net, images("small-cnn"), TARGETS)
    assert before == [set(m.__dict__) for m in net.modules()] and net.training


def test_any_module_that_rules_cover_will_do():
    for middle in (nn.ReLU(), nn.Sequential(), nn.Sequential(nn.Sequential(), nn.ReLU())):
        net = Odd(middle)
        assert attribute("lrp", net, images("small-cnn"), TARGETS).abs().sum() > 0


@pytest.mark.parametrize("head", ["protopnet", "tesnet", "fedgrasp"])
def test_a_head_without_a_rule_is_named(network, picture, head):
    with pytest.raises(ConfigError, match="vitrail explain"):
        attribute("lrp", network(head), picture(), torch.tensor([0]))


def test_a_class_that_says_nothing_gives_a_finite_map(network, picture):
    net = network("linear")
    nn.init.zeros_(net.head.weight)
    nn.init.zeros_(net.head.bias)
    assert attribute("lrp", net, picture(2), torch.tensor([0, 1])).abs().sum() == 0
    assert attribute("lrp", net, picture(0), torch.zeros(0, dtype=torch.int64)).shape == (0, 32, 32)
