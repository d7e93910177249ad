"""Switching parts off: logits stay sums of what is left, by the slow formula."""

import math

import pytest
import torch
import torch.nn.functional as F

from vitrail.config.schema import Model, Prototypes, Subspaces
from vitrail.errors import ConfigError
from vitrail.explain.painting import paint
from vitrail.explain.what_if import ChangedHead, WhatIf
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.heads.subspace_head import SubspaceHead
from vitrail.models.heads.tesnet_head import TesHead


@pytest.fixture(params=["protopnet", "tesnet", "fedgrasp"])
def head(request):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if request.param == "protopnet":
            made = ProtoHead(6, 3, Prototypes(per_class=2))
        elif request.param == "tesnet":
            made = TesHead(6, 3, Model(prototypes=Prototypes(per_class=2)))
        else:
            made = SubspaceHead(3, Subspaces(depth=6, dimension=2, top=4))
        with torch.no_grad():
            made.weight += 0.1 * torch.randn_like(made.weight)
        return made.eval(), torch.rand(1, 6, 3, 4)


def test_nothing_changed_is_the_head_itself(head):
    made, z = head
    with torch.no_grad():
        assert torch.allclose(
            ChangedHead(made, z, WhatIf()).logits().float(), made(z)["logits"][0], atol=1e-5
        )


@pytest.mark.parametrize("change", [
    WhatIf(units=frozenset({0})), WhatIf(places=frozenset({(0, 1), (2, 3)})), WhatIf(pull=0.0),
    WhatIf(pull=-2.5), WhatIf(frozenset({1}), frozenset({(1, 1)}), 0.5),
])  # fmt: skip
def test_logits_are_the_sums_of_what_is_left(head, change):
    made, z = head
    changed = ChangedHead(made, z, change)
    logits = changed.logits()
    for label in range(3):
        pieces = changed.pieces(label)
        assert math.isclose(
            math.fsum(p.contribution for p in pieces), float(logits[label]), abs_tol=1e-4
        )
        assert not any(p.unit in change.units for p in pieces)
        assert not any(p.at in change.places for p in pieces if p.at is not None)
        assert all(p.map is None or p.map.shape == (3, 4) for p in pieces)


def test_a_prototype_switched_off_is_a_masked_one(head):
    made, z = head
    if not isinstance(made, ProtoHead):
        pytest.skip("only these have a mask")
    changed = ChangedHead(made, z, WhatIf(units=frozenset({2}))).logits()
    made.mask[2] = 0
    with torch.no_grad():
        assert torch.allclose(changed.float(), made(z)["logits"][0], atol=1e-5)


def test_a_place_switched_off_is_not_seen_and_the_next_best_counts():
    head = ProtoHead(2, 1, Prototypes(per_class=1))
    with torch.no_grad():
        head.vectors.copy_(torch.tensor([[1.0, 0.0]]))
        head.weight.fill_(2.0)
    z = torch.tensor(
        [[[[1.0, 0.5]], [[0.0, 0.0]]]]
    )  # the first place matches, the second is 0.25 off
    best = float(ChangedHead(head, z, WhatIf()).logits())
    next_best = float(ChangedHead(head, z, WhatIf(places=frozenset({(0, 0)}))).logits())
    assert math.isclose(best, 2 * math.log(1 / 1e-4), rel_tol=1e-4)
    assert math.isclose(next_best, 2 * math.log(1.25 / 0.2501), rel_tol=1e-4)


def test_what_is_not_there_cannot_be_switched_off(head):
    made, z = head
    for without, words in (
        ([99], "no unit 99"),
        ([(9, 0)], r"no place \(9, 0\)"),
        ([(r, c) for r in range(3) for c in range(4)], "no place is left"),
    ):
        with pytest.raises(ConfigError, match=words):
            ChangedHead(made, z, WhatIf.parse(without)).logits()
    with pytest.raises(ConfigError, match="pull"):
        WhatIf.parse([], math.nan)


def test_painting_leaves_nothing_of_the_region():
    image = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    hole = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    hole[..., 2:5, 3:7] = True
    other = torch.where(hole, 1 - image, image)
    donor = torch.zeros_like(image)
    for how in ("cover", "blur", "paste"):
        painted = paint(image, hole, how, donor)
        assert torch.equal(painted, paint(other, hole, how, donor))
        assert torch.equal(painted[~hole.expand_as(image)], image[~hole.expand_as(image)])
    mean = image[~hole.expand_as(image)].view(3, -1).mean(1)
    assert torch.allclose(paint(image, hole, "cover")[0, :, 3, 4], mean, atol=1e-6)
    flat = torch.full_like(image, 0.4)
    assert torch.allclose(paint(flat, hole, "blur"), flat, atol=1e-6)
    with pytest.raises(ConfigError, match="paste from"):
        paint(image, hole, "paste")
    assert F.mse_loss(paint(image, torch.zeros_like(hole), "blur"), image) == 0
