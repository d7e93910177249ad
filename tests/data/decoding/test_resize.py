"""Images become squares; boxes follow them and can be mapped back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitrail.data.decoding.resize import (
    choose_size,
    make_resize_transform,
    map_boxes,
    resize_image,
    unmap_boxes,
)

MODES = ("crop", "stretch", "pad")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 900), st.integers(1, 900), st.integers(8, 300), st.sampled_from(MODES),
    st.lists(st.floats(-50, 950), min_size=4, max_size=4),
)  # fmt: skip
def test_both_directions_are_inverses(width, height, size, mode, box):
    mapping = make_resize_transform(width, height, size, mode)
    assert np.allclose(mapping.to_original(mapping.to_resized(box)), box, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(40, 100), (100, 40), (90, 90)])
def test_a_bright_square_lies_where_its_box_says(mode, shape):
    height, width = shape
    pixels = np.zeros(shape, np.uint8)
    x0, y0, x1, y1 = width // 2 - 10, height // 2 - 8, width // 2 + 6, height // 2 + 10
    pixels[y0:y1, x0:x1] = 255
    resized = np.asarray(resize_image(Image.fromarray(pixels), 80, mode))
    assert resized.shape == (80, 80)
    ys, xs = np.where(resized > 127)
    seen = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
    told = map_boxes([[x0, y0, x1, y1]], np.array([[width, height]], np.int32), 80, mode)[0]
    assert np.abs(np.array(seen) - told).max() <= 1.01


@pytest.mark.parametrize("mode", MODES)
def test_an_image_of_the_right_size_is_left_alone(mode):
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    assert (np.asarray(resize_image(Image.fromarray(pixels), 32, mode)) == pixels).all()


def test_extreme_sides_still_give_a_square():
    for mode in MODES:
        assert resize_image(Image.new("L", (1, 700)), 16, mode).size == (16, 16)


def test_boxes_are_cut_at_the_edges_and_unseen_points_are_nan():
    sizes = np.array([[200, 100]], np.int32)
    boxes = map_boxes([[0.0, 0.0, 200.0, 100.0]], sizes, 50, "crop")
    assert boxes.tolist() == [[0, 0, 50, 50]]
    points = map_boxes([[[0.0, 50.0], [100.0, 50.0], [np.nan, np.nan]]], sizes, 50, "crop")
    assert np.isnan(points[0, 0]).all() and points[0, 1].tolist() == [25, 25]
    assert np.isnan(points[0, 2]).all()
    assert map_boxes(np.zeros((0, 4)), np.zeros((0, 2), np.int32), 50, "crop").shape == (0, 4)
    assert np.isnan(map_boxes([[np.nan] * 4], sizes, 50, "pad")).all()


def test_unmap_gives_original_pixels():
    sizes = np.array([[200, 100], [64, 64]], np.int32)
    boxes = np.array([[60.0, 10.0, 140.0, 90.0], [1.0, 2.0, 3.0, 4.0]])
    for mode in MODES:
        there = map_boxes(boxes, sizes, 50, mode)
        assert np.allclose(unmap_boxes(there, sizes, 50, mode), boxes, atol=1e-3)


def test_the_rule_for_the_size():
    assert choose_size(48, [(1, 2)]) == 48
    assert choose_size(None, [(96, 96), (96, 96)]) == 96
    assert choose_size(None, [(96, 96), (64, 64)]) == 224
    assert choose_size(None, [(178, 218)]) == 224
    assert choose_size(None, [(178, 218)], arrays=True) == 178
    assert choose_size(None, [(4096, 4096)]) == 224
    assert choose_size(None, []) == 224
