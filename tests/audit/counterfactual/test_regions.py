"""The place units look at, boxes without meaning, and regions put into other images."""

import numpy as np
import pytest
import torch

from vitrail.audit.counterfactual.regions import Region, draw_random_regions, find_strongest_unit
from vitrail.audit.site_view import require_part_head
from vitrail.errors import RunError
from vitrail.models.heads.head import LinearHead
from vitrail.rng import derive_server_key

SIDE = 32


def looks(desk, model, label=0):
    z = desk.run_frozen_stages(desk.pixels[desk.select_class(label)])
    return find_strongest_unit(model, z, label, (SIDE, SIDE))


def test_the_strongest_unit_looks_at_its_color(make_desk):
    desk = make_desk()
    unit, boxes = looks(desk, desk.local)
    assert unit == 0 and len(boxes) == 12
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert bool(((middle[:, 0] < 10) & (middle[:, 1] > 22)).all())  # the red square
    _, boxes = looks(desk, desk.shared)
    assert bool((((boxes[:, :2] + boxes[:, 2:]) / 2 - 16).abs() < 4).all())  # the green one


def test_masked_units_look_nowhere(make_desk, seeker):
    desk = make_desk()
    two = seeker([["red", "green"], ["blue", "blue"], ["yellow", "yellow"]])
    first, _ = looks(desk, two)
    two.network.head.mask[first] = 0
    assert looks(desk, two)[0] == 1 - first
    two.network.head.mask[1 - first] = 0
    assert looks(desk, two) is None


def test_random_boxes_keep_their_size_and_stay_inside():
    like = torch.tensor([[0, 0, 5, 7], [3, 3, 4, 4], [0, 0, 20, 10], [2, 2, 2, 2]])
    found = draw_random_regions(like, (10, 20), 200, derive_server_key(1).at("x").numpy())
    assert len(found) == 200 and {r.kind for r in found} == {"random"}
    corners = torch.stack([r.boxes for r in found])
    assert bool((corners[..., 2:] - corners[..., :2] == like[:, 2:] - like[:, :2]).all())
    assert corners.min() == 0 and corners[..., 2].max() == 20 and corners[..., 3].max() == 10
    assert corners[:, 1, 0].unique().numel() == 20 and corners[:, 1, 1].unique().numel() == 10
    assert draw_random_regions(like, (10, 20), 0, np.random.Generator(np.random.PCG64(0))) == []


def test_into_puts_each_donors_region_into_its_recipients():
    draw = derive_server_key(2).torch()
    pool = torch.rand(2, 3, 8, 8, generator=draw)
    images, donors = torch.rand(4, 3, 8, 8, generator=draw), pool.repeat_interleave(2, 0)
    boxes = torch.tensor([[0, 0, 3, 3], [4, 4, 8, 8]])
    found = Region("place", boxes).paste_into(images, donors, pool)
    for at in range(4):
        x0, y0, x1, y1 = boxes[at // 2].tolist()
        wanted = images[at].clone()
        wanted[:, y0:y1, x0:x1] = pool[at // 2, :, y0:y1, x0:x1]
        assert torch.equal(found[at], wanted)
    found = Region("color").paste_into(images, donors, pool)
    assert float((found.mean((0, 2, 3)) - pool.mean((0, 2, 3))).abs().max()) < 0.02


def test_a_model_without_parts_has_no_strongest_unit(make_desk, seeker):
    desk = make_desk()
    model = seeker([["red"], ["blue"], ["yellow"]])
    model.network.head = LinearHead(3, 3)
    z = desk.run_frozen_stages(desk.pixels[:2])
    assert find_strongest_unit(model, z, 0, (32, 32)) is None
    with pytest.raises(RunError, match="no parts"):
        require_part_head(model)
