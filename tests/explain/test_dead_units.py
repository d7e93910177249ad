"""A prototype is dead if it is farther from every patch than patches are from each other."""

import numpy as np
import torch

from vitrail.config.schema import Prototypes
from vitrail.explain.dead_units import find_dead_units
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.rng import derive_server_key


def make_head(vectors, similarity="log"):
    head = ProtoHead(4, 2, Prototypes(per_class=len(vectors) // 2, similarity=similarity))
    head.vectors.data = vectors
    return head


def test_the_rule_is_that_of_a_loop_over_patches():
    draw = derive_server_key(4).at("patches").torch()
    z = torch.randn(5, 4, 3, 3, generator=draw)
    near = z[2, :, 1, 1] + 0.01
    far = torch.full((4,), 30.0)
    vectors = torch.stack([near, far, torch.zeros(4), far + 1])
    head = make_head(vectors)
    usual = np.median(
        [
            float(((z[n, :, y, x] - z[n - 1, :, y, x]) ** 2).sum())
            for n in range(5) for y in range(3) for x in range(3)
        ]
    )  # fmt: skip
    literal = []
    for unit in vectors:
        each = [
            float(((z[n, :, y, x] - unit) ** 2).sum())
            for n in range(5) for y in range(3) for x in range(3)
        ]  # fmt: skip
        literal.append(min(each) > usual)
    assert find_dead_units(head, z).tolist() == literal == [False, True, False, True]


def test_one_image_and_no_image_tell_nothing():
    head = make_head(torch.full((4, 4), 30.0))
    for count in (0, 1):
        assert not find_dead_units(head, torch.zeros(count, 4, 2, 2)).any()


def test_cosines_are_compared_at_one_length():
    z = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [1.0, 0.05, 0, 0]])[:, :, None, None]
    vectors = torch.tensor([[7.0, 0.4, 0, 0], [-1.0, 0, 0, 0]])
    assert find_dead_units(make_head(vectors, "cosine"), z).tolist() == [False, True]
