"""Why this class and not that one: rows add up to the difference, regions are joined."""

import math

import pytest
import torch

from vitrail.config.schema import Model
from vitrail.errors import ConfigError
from vitrail.explain.contrast import _is_one_place, compute_contrast
from vitrail.explain.evidence import OTHER
from vitrail.models.heads.head import HEADS
from vitrail.models.heads.part_head import PartHead
from vitrail.rng import derive_server_key

CLASSES = ("plain", "crested", "barred")
PART_HEADS = [n for n, build in HEADS.items() if isinstance(build(4, 2, Model())[1], PartHead)]


@pytest.mark.parametrize("seed", range(6))
def test_rows_add_up_to_the_difference_of_the_networks_own_logits(network, picture, seed):
    net = network(seed=seed)
    draw = derive_server_key(seed).at("weights").torch()
    net.head.weight.data.copy_(3 * torch.randn(net.head.weight.shape, generator=draw))
    x = picture(seed=seed)
    logits = net(x)[0].double()
    for top in (1, 5, 100):
        found = compute_contrast(net, x, 2, 0, CLASSES, top=top)
        total = math.fsum(row.contribution for row in found.evidence.contributions)
        assert total == pytest.approx(found.evidence.logit, abs=1e-6)
        assert found.evidence.logit == pytest.approx(
            float((logits[2] - logits[0]).detach()), abs=1e-4
        )
        assert found.evidence.contributions[-1].part == OTHER
        units = sum(row.units for row in found.evidence.contributions)
        assert units == int(net.head.alive().sum())  # every unit is in exactly one row
        sizes = [abs(row.contribution) for row in found.evidence.contributions[:-1]]
        assert sizes == sorted(sizes, reverse=True) and len(sizes) <= top


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_literal_sum_over_units_and_turns_around(network, picture, seed):
    net, x = network(seed=seed), picture(seed=seed)
    draw = derive_server_key(seed).at("weights").torch()
    net.head.weight.data.copy_(torch.randn(net.head.weight.shape, generator=draw))
    z = net.features(net.prefix(x if x.dim() == 4 else x[None]))
    scores = net.head.measure(z)["scores"][0].detach().double()
    weight = net.head.weight.detach().double() * net.head.alive()
    a, b = scores * weight[1], scores * weight[2]
    shared = sum(
        math.copysign(min(abs(float(u)), abs(float(v))), float(u))
        for u, v in zip(a, b)
        if float(u) * float(v) > 0
    )
    found = compute_contrast(net, x, 1, 2, CLASSES)
    assert found.evidence.logit == pytest.approx(float((a - b).sum().detach()), abs=1e-4)
    assert found.shared == pytest.approx(shared, abs=1e-4)
    back = compute_contrast(net, x, 2, 1, CLASSES)
    assert back.evidence.logit == pytest.approx(-found.evidence.logit, abs=1e-6)
    assert back.shared == pytest.approx(found.shared, abs=1e-6)


def test_a_unit_that_gives_both_classes_the_same_takes_no_side(network, picture):
    net, x = network(seed=3), picture(seed=3)
    net.head.weight.data.fill_(1.0)
    found = compute_contrast(net, x, 0, 1, CLASSES, top=100)
    assert all(row.contribution == pytest.approx(0) for row in found.evidence.contributions)
    assert found.shared == pytest.approx(float(net(x)[0, 0].detach()), abs=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((0, 0, 4, 4), (0, 0, 4, 4), True),
        ((0, 0, 4, 4), (0, 0, 4, 2), True),
        ((0, 0, 4, 4), (2, 2, 6, 6), False),
        ((0, 0, 4, 4), (4, 0, 8, 4), False),
        ((0, 0, 4, 4), None, False),
        (None, None, False),
    ],
)
def test_boxes_that_mostly_overlap_are_one_place(one, other, same):
    assert _is_one_place(one, other) is same and _is_one_place(other, one) is same


def test_a_class_is_not_set_against_itself(network, picture):
    with pytest.raises(ConfigError, match="against itself"):
        compute_contrast(network(), picture(), 1, 1, CLASSES)
