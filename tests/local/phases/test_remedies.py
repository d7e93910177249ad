"""Remedies: masks, penalties and mixes are the formulas they say."""

import math
from types import SimpleNamespace

import pytest
import torch

from vitrail.config.schema import Prototypes
from vitrail.local.phases.remedies import OWN_VECTORS, Mask, Mix, Penalize, Remember, mix_vectors
from vitrail.local.terms import Terms
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.rng import derive_server_key


def site(name="here", state=None):
    head = ProtoHead(4, 3, Prototypes(per_class=2))
    head.vectors.data = torch.rand(6, 4, generator=derive_server_key(1).torch())
    model = SimpleNamespace(network=SimpleNamespace(head=head))
    return SimpleNamespace(name=name, model=model, state=state or {}, terms=Terms())


def test_masked_prototypes_say_nothing():
    one = site()
    head = one.model.network.head
    assert Mask((1, 4))(one, None) == {"pruned": pytest.approx(2 / 6)}
    assert head.alive().tolist() == [True, False, True, True, False, True]
    z = torch.rand(3, 4, 2, 2, generator=derive_server_key(2).torch())
    before = head(z)["logits"]
    head.weight.data[:, [1, 4]] = 1e6
    assert torch.equal(head(z)["logits"], before)


@pytest.mark.parametrize("units", [(0,), (2, 5)])
def test_the_penalty_is_the_mean_similarity_to_what_is_named(units):
    one = site()
    Penalize(units, 0.5)(one, None)
    (term,) = one.terms.loss
    distances = torch.tensor([[0.0, 1.0, 4.0, 9.0, 0.25, 2.0], [1.0, 0.5, 0.1, 3.0, 2.0, 0.0]])
    each = [math.log((d + 1) / (d + 1e-4)) for row in distances.tolist() for d in
            (row[u] for u in units)]  # fmt: skip
    found = term({"distances": distances.double()}, (None, None))
    assert float(found) == pytest.approx(0.5 * sum(each) / len(each))


def test_the_mix_leans_to_the_own_prototype_the_farther_it_is():
    shared = torch.zeros(6, 2, dtype=torch.float64)
    own = torch.tensor([[1.0, 0], [2, 0], [1, 0], [1, 0], [0, 0], [3, 0]], dtype=torch.float64)
    chosen = torch.tensor([False, True, False, True, True, False])
    found = mix_vectors(shared, own, chosen)
    usual = 1.0  # the median of 1, 1 and 9, the squared distances of the others
    for at, share in ((1, 1 - usual / 4), (3, 0.0), (4, 0.0)):
        assert found[at].tolist() == pytest.approx((share * own[at]).tolist())


def test_only_prototypes_of_the_class_are_mixed_and_only_at_unsuspected_sites():
    one = site()
    head = one.model.network.head
    before = head.vectors.data.clone()
    far = before + torch.tensor([0.1, 0.1, 5.0, 5.0, 0.1, 0.1])[:, None]
    for name, state in (("there", {OWN_VECTORS: far}), ("here", {})):
        alike = site(name, state)
        Mix((1,), ("there",))(alike, None)
        assert torch.equal(alike.model.network.head.vectors.data, before)
    one.state[OWN_VECTORS] = far
    Mix((1,), ("there",))(one, None)
    assert torch.equal(head.vectors.data[[0, 1, 4, 5]], before[[0, 1, 4, 5]])
    assert torch.allclose(head.vectors.data[2:4], far[2:4], atol=0.01)


def test_what_was_trained_is_remembered_as_it_was():
    one = site()
    Remember()(one, None)
    one.model.network.head.vectors.data.zero_()
    assert float(one.state[OWN_VECTORS].abs().sum()) > 0
