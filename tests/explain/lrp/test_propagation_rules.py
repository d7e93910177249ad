"""Relevance rules against their formulas, summed one weight at a time in float64."""

import itertools

import pytest
import torch
from torch import nn

from vitrail.explain.lrp.layer_rules import propagate_relevance
from vitrail.explain.lrp.propagation_rules import (
    EPSILON,
    EPSILON_RULE,
    FLAT,
    Z_PLUS,
    propagate,
    stabilize,
)
from vitrail.models.backbones.layers import SamePad, Sum
from vitrail.rng import derive_server_key


def draw(*shape, at="x"):
    return torch.randn(*shape, generator=derive_server_key(3).at(at).torch(), dtype=torch.float64)


def sign(z):
    return -1.0 if z < 0 else 1.0


def literal(rule, x, weight, bias, relevance, stride=1, padding=0):
    """Every (output, input, weight) of a convolution visited on its own, for one image."""
    _, ins, kh, kw = weight.shape
    found = torch.zeros_like(x)
    for o, r, c in itertools.product(*map(range, relevance.shape)):
        terms, z = [], 0.0
        for i, a, b in itertools.product(range(ins), range(kh), range(kw)):
            y, w = r * stride + a - padding, c * stride + b - padding
            if not (0 <= y < x.shape[1] and 0 <= w < x.shape[2]):
                continue
            product = float(x[i, y, w] * weight[o, i, a, b])
            value = float(x[i, y, w])
            kernel = float(weight[o, i, a, b])
            part = {
                "epsilon": product,
                "z+": max(value, 0) * max(kernel, 0) + min(value, 0) * min(kernel, 0),
                "flat": 1.0,
            }[rule]
            terms.append(((i, y, w), part))
            z += part
        b = 0.0 if bias is None else float(bias[o])
        z += {"epsilon": b, "z+": max(b, 0.0), "flat": 0.0}[rule]
        for place, part in terms:
            found[place] += part / (z + EPSILON * sign(z)) * float(relevance[o, r, c])
    return found


@pytest.mark.parametrize("rule", [EPSILON_RULE, Z_PLUS, FLAT], ids=lambda r: r.name)
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_rule_is_its_formula(rule, positive, bias):
    x, weight = draw(2, 4, 5), draw(3, 2, 3, 3, at="w")
    x = x.abs() if positive else x
    shift = draw(3, at="b") if bias else None
    conv = nn.Conv2d(2, 3, 3, stride=2, padding=1).double()
    relevance = draw(3, 2, 3, at="r")
    found = propagate(rule, relevance[None], x[None], weight, shift, conv._conv_forward)[0]
    expected = literal(rule.name, x, weight, shift, relevance, stride=2, padding=1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_the_stabilizer_never_lets_anything_near_zero():
    z = torch.tensor([0.0, -0.0, 1e-9, -1e-9, 2.0, -2.0])
    assert bool((stabilize(z).abs() >= EPSILON * 0.99).all())
    assert stabilize(z)[3] < 0 < stabilize(z)[0]


def through(model, x, relevance):
    x = x.clone().requires_grad_()
    with propagate_relevance(model):
        y = model(x)
    return torch.autograd.grad(y, x, relevance)[0], y.detach()


class Two(nn.Module):
    """Something after a first layer, so that z+ is seen and not flat."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def with_statistics(norm):
    norm.running_mean.copy_(draw(len(norm.running_mean), at="mean"))
    norm.running_var.copy_(draw(len(norm.running_var), at="var").abs() + 0.2)
    norm.weight.data.copy_(draw(len(norm.weight), at="gain"))
    norm.bias.data.copy_(draw(len(norm.bias), at="shift"))
    return norm.double().eval()


def test_a_folded_norm_is_the_merged_convolution_and_the_module_stays_as_it_was():
    conv, norm = nn.Conv2d(2, 3, 3, padding=1).double(), with_statistics(nn.BatchNorm2d(3))
    x, relevance = draw(2, 2, 5, 5), draw(2, 3, 5, 5, at="r")
    model = Two(nn.Conv2d(2, 2, 1).double(), conv, norm, nn.ReLU())
    before = {n: t.clone() for n, t in model.state_dict().items()}
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    weight = (conv.weight * scale[:, None, None, None]).detach()
    bias = ((conv.bias - norm.running_mean) * scale + norm.bias).detach()
    inside = model.layers[0](x).detach()
    expected = torch.stack(
        [literal("z+", i, weight, bias, r, padding=1) for i, r in zip(inside, relevance)]
    )
    head = Two(model.layers[0])
    expected = through(head, x, expected)[0]
    found, y = through(model, x, relevance)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(y, model(x).detach())
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_a_norm_without_a_convolution_is_a_diagonal_layer():
    norm, x, relevance = with_statistics(nn.BatchNorm2d(2)), draw(1, 2, 2, 2), draw(1, 2, 2, 2)
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
    shift = norm.bias - norm.running_mean * scale
    found, y = through(Two(norm), x, relevance)
    for c, r, w in itertools.product(range(2), range(2), range(2)):
        part = float(x[0, c, r, w] * scale[c])
        z = part + float(shift.detach()[c])
        expected = part / (z + EPSILON * sign(z)) * float(relevance[0, c, r, w])
        assert float(found[0, c, r, w]) == pytest.approx(expected, rel=1e-9)
    torch.testing.assert_close(y, norm(x).detach())


def test_a_group_norm_computes_what_it_always_does():
    norm = nn.GroupNorm(2, 6).double()
    nn.init.normal_(norm.weight, generator=derive_server_key(1).torch())
    x = draw(3, 6, 4, 4)
    found, y = through(Two(norm), x, torch.ones_like(x))
    torch.testing.assert_close(y, norm(x).detach())
    groups = x[0].reshape(2, -1)
    spread = (groups.var(1, correction=0) + norm.eps).sqrt()
    part = float(x[0, 4, 1, 2] * norm.weight.detach()[4] / spread[1])
    z = part + float((norm.bias[4] - groups[1].mean() * norm.weight[4] / spread[1]).detach())
    assert float(found[0, 4, 1, 2]) == pytest.approx(part / (z + EPSILON * sign(z)), rel=1e-9)


class Residual(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.branch, self.sum = branch, Sum()

    def forward(self, x):
        return self.sum(self.branch(x), x)


def test_a_residual_sum_does_not_double_relevance():
    x, relevance = draw(1, 2, 3, 3).abs(), draw(1, 2, 3, 3, at="r").abs()
    found, _ = through(Residual(nn.Identity()), x, relevance)
    torch.testing.assert_close(found, relevance, rtol=1e-4, atol=1e-6)
    inside = nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), nn.ReLU()).double()
    inside[0].weight.data.abs_()
    found, _ = through(Residual(inside), x, relevance)
    assert float(found.sum()) == pytest.approx(float(relevance.sum()), rel=1e-4)


def test_an_average_shares_in_proportion_and_a_maximum_gives_all_to_the_winner():
    x = torch.tensor([[[[1.0, 3.0], [4.0, 0.0]]]], dtype=torch.float64)
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    shares, _ = through(Two(nn.AvgPool2d(2)), x, one)
    torch.testing.assert_close(shares, x / 8, rtol=1e-5, atol=1e-9)
    winner, _ = through(Two(nn.MaxPool2d(2)), x, one)
    assert winner.flatten().tolist() == [0, 0, 1, 0]


def test_relevance_does_not_leak_into_padding():
    model = Two(SamePad(3, 2), nn.Conv2d(1, 2, 3, stride=2)).double()
    x = draw(1, 1, 6, 6)
    found, y = through(model, x, torch.ones(1, 2, 3, 3, dtype=torch.float64))
    assert found.shape == x.shape and y.shape == (1, 2, 3, 3)
    assert float(found.sum()) == pytest.approx(18, rel=1e-5)


def test_an_activation_in_place_does_not_spoil_what_rules_need():
    layers = [nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)]
    plain = Two(*layers).double()
    hasty = Two(layers[0], nn.ReLU(inplace=True), layers[2]).double()
    x, relevance = draw(1, 2, 6, 6), draw(1, 2, 2, 2, at="r")
    assert torch.equal(through(plain, x, relevance)[0], through(hasty, x, relevance)[0])
