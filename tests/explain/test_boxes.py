"""Boxes against numpy's percentile, pixel by pixel."""

import numpy as np
import pytest
import torch

from vitrail.explain.boxes import find_boxes, upsample
from vitrail.rng import derive_server_key


def literal(large, percentile):
    strong = large >= np.percentile(large, percentile)
    rows, columns = np.flatnonzero(strong.any(1)), np.flatnonzero(strong.any(0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


@pytest.mark.parametrize(("height", "width"), [(64, 64), (21, 1), (16, 40), (7, 3)])
@pytest.mark.parametrize("percentile", [95.0, 50.0, 0.0, 100.0])
def test_the_box_is_the_smallest_one_around_the_percentile(height, width, percentile):
    maps = torch.randn(3, 2, 5, 5, generator=derive_server_key(1).torch())
    found = find_boxes(maps, height, width, percentile)
    assert found.shape == (3, 2, 4) and found.dtype == torch.int64
    for large, box in zip(
        upsample(maps, height, width).reshape(6, height, width), found.view(6, 4)
    ):
        assert box.tolist() == literal(large.numpy(), percentile)


def test_one_hot_place_is_inside_its_box_and_the_box_is_small():
    map_ = torch.zeros(8, 8)
    map_[2, 5] = 1
    x0, y0, x1, y1 = find_boxes(map_, 64, 64).tolist()
    assert x0 <= 44 < x1 and y0 <= 20 < y1 and (x1 - x0) * (y1 - y0) < 0.1 * 64 * 64


@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_a_map_that_says_nothing_gives_the_whole_image(value):
    assert find_boxes(torch.full((4, 4), value), 10, 12).tolist() == [0, 0, 12, 10]


def test_no_maps_at_all():
    assert find_boxes(torch.zeros(0, 4, 4), 8, 8).shape == (0, 4)
    assert upsample(torch.zeros(2, 0, 4, 4), 8, 9).shape == (2, 0, 8, 9)
