"""Ticks a person would choose, and text that fits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageFont

from vitrail.report.charts.scale import (
    Scale,
    choose_ticks,
    estimate_width,
    pad_range,
    shorten_text,
)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(2, 12))
def test_ticks_are_round_and_inside(a, b, most):
    low, high = min(a, b), max(a, b)
    ticks = choose_ticks(low, high, most)
    if high > low:
        assert len(ticks) <= most + 1
        room = 1e-6 * max(1.0, abs(low), abs(high))
        assert all(low - room <= t <= high + room for t in ticks)
        assert ticks == sorted(ticks)


def test_ticks_of_nothing():
    assert choose_ticks(math.nan, 1) == [] and choose_ticks(3, 3) == [3]
    assert choose_ticks(0, 3, 8, whole=True) == [0, 1, 2, 3]


def test_a_scale_of_one_point_is_its_middle():
    assert Scale(2, 2, 0, 10)(2) == 5
    low, high = pad_range([0.0])
    assert low < 0 < high


@given(st.text(max_size=300), st.floats(10, 400))
def test_cut_text_fits(text, room):
    assert estimate_width(shorten_text(text, room, 12), 12) <= max(9 * 12, room)
    assert len(shorten_text(text, 24, 12)) <= max(3, len("(no name)"))


NAMES = ["KLINIKUM MÜNCHEN WEST", "WWW MMM", "site-00", "Hôpital Saint-Louis", "0123456789", "Ili"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_never_wider_than_was_thought(name):
    """Else its first letters are cut off at the left of a chart; the font is a wide one."""
    try:
        font = ImageFont.truetype("DejaVuSans.ttf", 1200)  # so large that no pixel is rounded up
    except OSError:
        pytest.skip("DejaVu Sans is not on this machine")
    width = font.getlength(name) / 100
    assert width <= estimate_width(name, 12) <= 1.35 * width
