"""Scenes, scales and colors: what is drawn is what was meant, on a page, in a file, as pixels."""

import io
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitrail.report.document.chart_lines import Series, lines
from vitrail.report.document.chart_matrix import Cell, matrix
from vitrail.report.document.chart_rows import Bar, Dot, bars, dots
from vitrail.report.document.chart_timeline import Event, timeline
from vitrail.report.document.markup import Html, el, html, join, say
from vitrail.report.document.palette import ROLES
from vitrail.report.document.raster import png
from vitrail.report.document.scale import Scale, cut, padded, ticks
from vitrail.report.document.scene import Mark, Scene, Text, box
from vitrail.report.document.table import Column, Table

HOSTILE = '<script>alert("1")</script>&amp;\x00 $x$ {0}'


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    one, other = sorted((luminance(a), luminance(b)), reverse=True)
    return (one + 0.05) / (other + 0.05)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("role", ["ink", "soft", "for", "against", "bad", "warn", "fine"])
@pytest.mark.parametrize("ground", ["paper", "card", "quiet"])
def test_text_can_be_read_by_day_and_night(mode, role, ground):
    assert contrast(ROLES[role][mode], ROLES[ground][mode]) >= 4.5  # WCAG 2.2, 1.4.3


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("role", [f"c{n}" for n in range(1, 8)])
def test_lines_stand_out_from_the_page(mode, role):
    assert contrast(ROLES[role][mode], ROLES["card"][mode]) >= 3  # WCAG 2.2, 1.4.11


def test_text_is_escaped_and_markup_is_not():
    assert html("<b>") == "&lt;b&gt;"
    assert html(Html("<b>")) == "<b>"
    assert el("a", "<", href='"x"', class_="y", hidden=False, aria_label=None) == (
        '<a href="&quot;x&quot;" class="y">&lt;</a>'
    )
    assert join(["a<", None, Html("<i>")], "&") == "a&lt;&amp;<i>"
    assert say("{} is <{}>", "{x}", el("b", 1)) == "{x} is &lt;<b>1</b>&gt;"


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(2, 12))
def test_ticks_are_round_and_inside(a, b, most):
    low, high = min(a, b), max(a, b)
    found = ticks(low, high, most)
    if high > low:
        assert len(found) <= most + 1
        room = 1e-6 * max(1.0, abs(low), abs(high))
        assert all(low - room <= t <= high + room for t in found)
        assert found == sorted(found)


def test_ticks_of_nothing():
    assert ticks(math.nan, 1) == [] and ticks(3, 3) == [3]
    assert ticks(0, 3, 8, whole=True) == [0, 1, 2, 3]


def test_a_scale_of_one_point_is_its_middle():
    assert Scale(2, 2, 0, 10)(2) == 5
    low, high = padded([0.0])
    assert low < 0 < high


@given(st.text(max_size=300), st.floats(10, 400))
def test_cut_text_fits(text, room):
    assert len(cut(text, room, 12)) <= max(9, room / (12 * 0.56) + 1)


def test_a_hostile_text_is_text_in_the_page_and_in_the_file():
    scene = Scene(100, 50, HOSTILE, HOSTILE, [Text((5, 5), HOSTILE.replace("\x00", ""), tip='a"b')])
    assert "<script" not in scene.inline()
    ET.fromstring(scene.file().replace("\x00", ""))
    assert png(scene).startswith(b"\x89PNG")


def test_pixels_are_where_the_shapes_are():
    scene = Scene(100, 50, "", "", [box(0, 0, 50, 50, "c1"), Mark((75, 25), 10, "c2")])
    found = np.asarray(Image.open(io.BytesIO(png(scene))).convert("RGB"))
    assert found.shape[:2] == (100, 200)

    def color(role):
        value = ROLES[role][0]
        return [int(value[i : i + 2], 16) for i in (1, 3, 5)]

    assert np.abs(found[50, 50].astype(int) - color("c1")).max() <= 2
    assert np.abs(found[50, 150].astype(int) - color("c2")).max() <= 2
    assert (found[5, 190] == 255).all()


@pytest.mark.parametrize("width", [330.0, 860.0])
def test_charts_stay_on_their_sheet(width):
    names = ["a", HOSTILE.replace("\x00", ""), "x" * 200]
    series = [Series(n, ((1, 0.2), (2, 0.9)), band=((1, 0.1, 0.3), (2, 0.8, 1.0))) for n in names]
    events = [Event(n, r, 10.0 * r, "release", r > 1) for n in names for r in (1, 2, 300)]
    scenes = [
        lines(series, "t", "accuracy", width),
        lines([Series("one", ((3, 0.5),))], "t", "loss", width),
        dots([Dot(n, 0.5, 0.1, 0.9) for n in names], "t", "x", width),
        dots([Dot("a", n / 9, kind=f"kind number {n}") for n in range(9)], "t", "x", width),
        bars([Bar(n, 3, "3") for n in names], "t", width),
        matrix(names, names, [[Cell(0.5, "12")] * 3] * 3, "t", width),
        matrix(names, ["c"] * 200, [[Cell(None)] * 200] * 3, "t", width),
        timeline([*events, Event("a", None, 5, "audit", False)], names, "t", width),
    ]
    for scene in scenes:
        assert scene.width == width
        for shape in scene.shapes:
            points = shape.points if hasattr(shape, "points") else [shape.at]
            for x, y in points:
                assert -1 <= x <= width + 1 and -1 <= y <= scene.height + 1, shape
        ET.fromstring(scene.file())


def test_a_table_sorts_by_value_and_writes_plain_numbers():
    columns = (Column("name"), Column("share", lambda v: f"{100 * v:.0f} %", number=True))
    table = Table("t", "caption", columns, (("a", 0.123456), ("=1+1", None)))
    assert 'data-sort="0.123456"' in table.html() and "12 %" in table.html()
    assert table.csv() == "name,share\na,0.123456\n'=1+1,\n"
