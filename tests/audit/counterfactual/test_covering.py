"""Counterfactual images: nothing of a region is left, and nothing else is touched."""

import pytest
import torch

from vitrail.audit.counterfactual.covering import cover, make_box_mask, match_colors, swap
from vitrail.rng import derive_server_key

BOXES = {
    "some": [3, 5, 9, 11],
    "corner": [0, 0, 4, 4],
    "whole": [0, 0, 16, 12],
    "empty": [7, 7, 7, 7],
    "beyond": [-5, 10, 40, 50],
}


def pictures(count=3, seed=0, height=12, width=16):
    draw = derive_server_key(seed).at("pictures").torch()
    return torch.rand(count, 3, height, width, generator=draw, dtype=torch.float64)


def literal(box, height=12, width=16):
    x0, y0, x1, y1 = box
    return torch.tensor(
        [[x0 <= x < x1 and y0 <= y < y1 for x in range(width)] for y in range(height)]
    )


@pytest.mark.parametrize("name", BOXES)
def test_inside_is_what_two_loops_say(name):
    found = make_box_mask(torch.tensor([BOXES[name], BOXES["some"]]), 12, 16)
    assert found.shape == (2, 1, 12, 16)
    assert torch.equal(found[0, 0], literal(BOXES[name]))
    assert torch.equal(found[1, 0], literal(BOXES["some"]))


@pytest.mark.parametrize("how", ["mean", "blur"])
@pytest.mark.parametrize("name", BOXES)
def test_cover_leaves_all_outside_and_nothing_inside(name, how):
    """Whatever the region showed, the covered image is the same."""
    box, mask = torch.tensor([BOXES[name]] * 3), literal(BOXES[name])
    images = pictures()
    found = cover(images, box, how)
    assert torch.equal(found[..., ~mask], images[..., ~mask])
    other = torch.where(mask, 1 - images, images)
    assert torch.equal(cover(other, box, how), found)
    assert bool(found.isfinite().all()) and found.min() >= 0 and found.max() <= 1


def test_cover_by_the_mean_is_the_mean_of_the_rest():
    images, mask = pictures(1), literal(BOXES["some"])
    found = cover(images, torch.tensor([BOXES["some"]]), "mean")
    for channel in range(3):
        rest = [images[0, channel, y, x] for y in range(12) for x in range(16) if not mask[y, x]]
        wanted = sum(rest) / len(rest)
        assert torch.allclose(found[0, channel][mask], wanted.expand(int(mask.sum())))


def test_the_blur_keeps_a_flat_image_flat_and_follows_what_is_near():
    flat = torch.full((1, 3, 12, 16), 0.3)
    assert torch.allclose(cover(flat, torch.tensor([BOXES["some"]])), flat)
    halves = torch.zeros(1, 3, 16, 16)
    halves[..., 8:] = 1
    found = cover(halves, torch.tensor([[0, 4, 16, 12]]))
    assert found[0, 0, 8, 0] < 0.2 and found[0, 0, 8, 15] > 0.8


def test_each_image_has_a_box_of_its_own():
    boxes = torch.tensor([BOXES["some"], BOXES["corner"], BOXES["empty"]])
    images = pictures()
    together = cover(images, boxes)
    for at in range(3):
        assert torch.allclose(together[at], cover(images[at : at + 1], boxes[at : at + 1])[0])
    assert torch.equal(together[2], images[2])


def test_no_images_are_no_images():
    none = pictures(0)
    assert cover(none, torch.zeros(0, 4, dtype=torch.int64)).shape == none.shape


@pytest.mark.parametrize("name", BOXES)
def test_swap_is_what_loops_say(name):
    images, donors, mask = pictures(2, 1), pictures(2, 2), literal(BOXES[name])
    found = swap(images, donors, torch.tensor([BOXES[name]] * 2))
    for y in range(12):
        for x in range(16):
            source = donors if mask[y, x] else images
            assert torch.equal(found[:, :, y, x], source[:, :, y, x])


@pytest.mark.parametrize("count", [1, 5])
def test_matched_moves_mean_and_spread_of_every_channel(count):
    images = 0.4 + 0.1 * pictures(count, 3)
    target = 0.5 + 0.2 * pictures(7, 4)
    found = match_colors(images, target)
    for channel in range(3):
        assert float(found[:, channel].mean()) == pytest.approx(float(target[:, channel].mean()))
        assert float(found[:, channel].std()) == pytest.approx(float(target[:, channel].std()))
    assert torch.allclose(match_colors(images, images), images)


def test_matched_takes_images_of_one_color():
    found = match_colors(torch.full((2, 3, 4, 4), 0.2), pictures(2))
    assert bool(found.isfinite().all()) and float(found.std()) < 0.1
