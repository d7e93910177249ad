"""Where a finding lies, in pixels of originals of any size and in words."""

import numpy as np
import pytest
import torch

from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.place_words import compute_median_box, compute_original_box, describe_place


@pytest.mark.parametrize(
    ("box", "told"),
    [
        ([0, 0, 8, 8], "the upper left of the image"),
        ([24, 24, 32, 32], "the lower right of the image"),
        ([12, 12, 20, 20], "the center of the image"),
        ([10, 0, 22, 6], "the top of the image"),
        ([10, 28, 22, 32], "the bottom of the image"),
        ([0, 10, 6, 22], "the left of the image"),
        ([0, 0, 32, 32], "most of the image"),
    ],
)
def test_words(box, told):
    assert describe_place(Region("place", torch.tensor([box])), (32, 32)) == told


def test_words_for_what_is_no_place():
    assert "color" in describe_place(Region("color"), (8, 8))
    anywhere = Region("anywhere", torch.tensor([[0, 0, 2, 2]]))
    assert "elsewhere in each image" in describe_place(anywhere, (8, 8))


def test_the_typical_box_is_the_median_of_each_edge_and_never_empty():
    boxes = torch.tensor([[0, 0, 4, 4], [2, 8, 6, 12], [30, 1, 31, 9]])
    assert compute_median_box(boxes) == (2, 1, 6, 9) and compute_median_box(boxes[:1]) == (
        0,
        0,
        4,
        4,
    )
    assert compute_median_box(None) is None and compute_median_box(boxes[:0]) is None
    x0, y0, x1, y1 = compute_median_box(boxes[:2])
    assert x0 < x1 and y0 < y1


def test_boxes_are_in_pixels_of_the_originals(make_desk):
    """The center of a wide original was kept: 64 x 32 pixels, of which 16 to 48 were seen."""
    boxes = torch.tensor([[0, 24, 8, 32]] * 2)
    assert compute_original_box(make_desk(), (0, 1), boxes) == (0, 24, 8, 32)
    wide = np.tile(np.array([[64, 32]], np.int32), (36, 1))
    assert compute_original_box(make_desk(sizes=wide), (0, 1), boxes) == (16, 24, 24, 32)
    double = np.tile(np.array([[64, 64]], np.int32), (36, 1))
    assert compute_original_box(make_desk(sizes=double), (0, 1), boxes) == (0, 48, 16, 64)
    assert compute_original_box(make_desk(sizes=double), (), None) is None


def test_a_box_in_the_padding_has_no_place(make_desk):
    desk = make_desk(sizes=np.tile(np.array([[64, 32]], np.int32), (36, 1)))
    desk.local.card["resize"] = "pad"  # 32 x 16 in the middle rows of the square
    border, seen = [0, 0, 8, 6], [0, 8, 8, 16]
    assert compute_original_box(desk, (0,), torch.tensor([border])) is None
    assert compute_original_box(desk, (0, 1), torch.tensor([border, seen])) == (0, 0, 16, 16)
