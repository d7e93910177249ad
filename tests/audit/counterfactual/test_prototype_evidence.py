"""Prototype by prototype: who looks at a planted mark, and how far two models are apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vitrail.audit.counterfactual.effects import probe
from vitrail.audit.counterfactual.prototype_evidence import (
    collect_unit_evidence,
    correlation,
    find_excited_units,
    has_same_latent_space,
)
from vitrail.audit.detection.feature_layout import Unit
from vitrail.rng import derive_server_key

CORNER = Unit("tone", "place", np.arange(3), (0.0, 0.75, 0.25, 1.0))
TWO = [["green", "red"], ["blue", "blue"], ["yellow", "yellow"]]


def found(desk):
    return collect_unit_evidence(desk, probe(desk, 0, CORNER, derive_server_key(0)))


def test_the_prototype_that_seeks_the_mark_is_named_and_no_other(make_desk, seeker):
    models = {"shared": seeker(TWO), "local": seeker(TWO)}
    green, red = found(replace(make_desk(), **models))
    assert (green.unit, red.unit) == (0, 1)
    assert red.named and not green.named and red.rise > 1 > abs(green.rise)
    assert red.drop > 1 > abs(green.drop) and red.inside > green.inside


def test_what_the_own_model_brings_into_a_slot_is_named_too(make_desk):
    """The shared model does not know the mark; the own model's prototype of that number does."""
    (green,) = found(make_desk())
    assert green.named and green.own_rise > 1 > abs(green.rise)
    (green,) = found(make_desk(mark=False))
    assert not green.named


def test_masked_prototypes_are_not_listed(make_desk, seeker):
    shared = seeker(TWO)
    shared.network.head.mask[1] = 0
    desk = replace(make_desk(), shared=shared, local=seeker(TWO))
    assert [one.unit for one in found(desk)] == [0]


def test_each_is_compared_with_the_nearest_own_prototype(make_desk, seeker):
    """Equal up to the head: by vectors. The own model has red alone, in another slot."""
    own = seeker([["red", "red"], ["blue", "blue"], ["yellow", "yellow"]])
    desk = replace(make_desk(), shared=seeker(TWO), local=own)
    green, red = found(desk)
    assert green.by == red.by == "vectors" and red.distance == pytest.approx(0.0, abs=1e-9)
    own, shared = (m.network.head.vectors.detach().double() for m in (desk.local, desk.shared))
    assert green.distance == pytest.approx(float((own[0] - shared[0]).square().sum()))
    assert red.overlap == 1.0 and green.overlap == 0.0


def test_models_of_different_latent_spaces_are_compared_by_their_maps(make_desk, seeker):
    local = seeker(TWO)
    local.network.neck = torch.nn.Conv2d(3, 3, 1, bias=False)
    local.network.neck.weight.data = 2 * torch.eye(3)[:, :, None, None]
    desk = replace(make_desk(), local=local, shared=seeker(TWO))
    assert not has_same_latent_space(desk.local, desk.shared)
    assert all(one.by == "maps" and 0 <= one.distance <= 2 for one in found(desk))


def test_correlation_is_that_of_numpy_and_nothing_for_flat_maps():
    one, two = (torch.rand(5, 3, 2, 2, generator=derive_server_key(s).torch()) for s in (1, 2))
    wanted = np.corrcoef(
        one.transpose(0, 1).flatten(1).numpy(), two.transpose(0, 1).flatten(1).numpy()
    )[:3, 3:]
    assert np.allclose(correlation(one, two).numpy(), wanted, atol=1e-6)
    flat = torch.full((5, 1, 2, 2), 0.7)
    assert correlation(flat, flat).item() == 0.0


@pytest.mark.parametrize(
    ("rises", "named"),
    [
        ([0.3, 0.02, 0.15, 0.04, -2.0], [True, False, True, False, False]),
        ([0.1, 0.02, 0.09, 0.04, -2.0], [False] * 5),  # another class is moved nearly as much
        ([-0.1, -0.2, -0.3, -0.5, -0.5], [False] * 5),
        ([0.0, 0.0, 0.0, 0.0, 0.0], [False] * 5),
    ],
)
def test_what_counts_as_excited(rises, named):
    own = torch.tensor([True, True, True, False, False])
    assert find_excited_units(torch.tensor(rises), own, ~own).tolist() == named
    none = torch.zeros(5, dtype=torch.bool)
    assert not find_excited_units(torch.tensor(rises), none, ~own).any()
