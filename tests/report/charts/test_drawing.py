"""Drawings: what is drawn is what was meant, on a page, in a file, as pixels."""

import io
import tomllib
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from vitrail.report.charts.chart_lines import Series, draw_lines
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.chart_rows import Bar, Dot, draw_bars, draw_dots
from vitrail.report.charts.chart_timeline import Event, draw_timeline
from vitrail.report.charts.drawing import Drawing, Mark, Path, Photo, Text, box
from vitrail.report.charts.palette import ROLES
from vitrail.report.charts.raster import render_png

HOSTILE = '<script>alert("1")</script>&amp;\x00 $x$ {0}'


def test_a_hostile_text_is_text_in_the_page_and_in_the_file():
    drawing = Drawing(
        100, 50, HOSTILE, HOSTILE, [Text((5, 5), HOSTILE.replace("\x00", ""), tip='a"b')]
    )
    assert "<script" not in drawing.to_inline_svg()
    ET.fromstring(drawing.to_svg_file().replace("\x00", ""))
    assert render_png(drawing).startswith(b"\x89PNG")


def test_pixels_are_where_the_shapes_are():
    drawing = Drawing(100, 50, "", "", [box(0, 0, 50, 50, "c1"), Mark((75, 25), 10, "c2")])
    pixels = np.asarray(Image.open(io.BytesIO(render_png(drawing))).convert("RGB"))
    assert pixels.shape[:2] == (100, 200)

    def color(role):
        value = ROLES[role][0]
        return [int(value[i : i + 2], 16) for i in (1, 3, 5)]

    assert np.abs(pixels[50, 50].astype(int) - color("c1")).max() <= 2
    assert np.abs(pixels[50, 150].astype(int) - color("c2")).max() <= 2
    assert (pixels[5, 190] == 255).all()


@pytest.mark.parametrize("width", [330.0, 860.0])
def test_charts_stay_on_their_sheet(width):
    names = ["a", HOSTILE.replace("\x00", ""), "x" * 200]
    series = [Series(n, ((1, 0.2), (2, 0.9)), band=((1, 0.1, 0.3), (2, 0.8, 1.0))) for n in names]
    events = [Event(n, r, 10.0 * r, "release", r > 1) for n in names for r in (1, 2, 300)]
    drawings = [
        draw_lines(series, "t", "accuracy", width),
        draw_lines([Series("one", ((3, 0.5),))], "t", "loss", width),
        draw_dots([Dot(n, 0.5, 0.1, 0.9) for n in names], "t", "x", width),
        draw_dots([Dot("a", n / 9, kind=f"kind number {n}") for n in range(9)], "t", "x", width),
        draw_bars([Bar(n, 3, "3") for n in names], "t", width),
        draw_matrix(names, names, [[Cell(0.5, "12")] * 3] * 3, "t", width),
        draw_matrix(names, ["c"] * 200, [[Cell(None)] * 200] * 3, "t", width),
        draw_timeline([*events, Event("a", None, 5, "audit", False)], names, "t", width),
    ]
    for drawing in drawings:
        assert drawing.width == width
        for shape in drawing.shapes:
            points = shape.points if hasattr(shape, "points") else [shape.at]
            for x, y in points:
                assert -1 <= x <= width + 1 and -1 <= y <= drawing.height + 1, shape
        ET.fromstring(drawing.to_svg_file())


def test_what_leads_to_a_name_is_not_taken_for_data():
    """A line that ends early ends there: nothing in a line's color goes on to its name."""
    series = [Series("short", ((1, 0.2), (2, 0.4))), Series("long", ((1, 0.5), (9, 0.6)))]
    drawing = draw_lines(series, "t", "accuracy", 860)
    right = drawing.plot.box[2]
    paths = [s for s in drawing.shapes if getattr(s, "series", "") == "short" and s.zoom != "point"]
    lines = [s for s in paths if hasattr(s, "points")]
    inside = [s for s in lines if min(x for x, _ in s.points) < right]
    assert len(inside) == 1 and len(inside[0].points) == 2  # the data and nothing else
    colored = [s for s in lines if s not in inside and s.stroke == inside[0].stroke]
    assert len(colored) == 1 and colored[0].dash == inside[0].dash  # a sample beside the name


def test_no_picture_needs_matplotlib(project):
    """Figures of experiments are drawn with it; the package does without."""
    for file in (project / "src").rglob("*.py"):
        assert "matplotlib" not in file.read_text(encoding="utf-8"), file

    tree = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert not any("matplotlib" in line for line in tree["project"]["dependencies"])


def test_a_machine_without_fonts_still_writes_every_name(monkeypatch):
    from vitrail.report.charts import fonts

    monkeypatch.setattr(fonts, "load_font", lambda size, bold=False: None)
    names = ("fièvre", "\N{MINUS SIGN}3 \N{MULTIPLICATION SIGN} 4", "ε", "肺", "")
    drawing = Drawing(200, 100, "t", "", [Text((10, 20 * n + 10), t) for n, t in enumerate(names)])
    pixels = np.asarray(Image.open(io.BytesIO(render_png(drawing))).convert("L"))
    for n, name in enumerate(names):
        line = pixels[40 * n : 40 * n + 40]
        assert (line.min() < 120) == bool(name), name
    assert fonts.to_plain_letters("fièvre \N{MINUS SIGN}3") == "fievre -3"


def test_faint_turned_and_dashed_shapes_lie_where_they_should():
    shapes = [
        Path(((10, 10), (90, 10)), stroke="ink", width=2, dash=(10, 10)),
        Path(((10, 30), (90, 30), (90, 50), (10, 50)), fill="ink", alpha=0.5),
        Photo((10, 60), 20, 20, Image.new("RGB", (2, 2), "red")),
        Text((50, 80), "|", turn=90, size=20, anchor="middle"),
    ]
    pixels = np.asarray(Image.open(io.BytesIO(render_png(Drawing(100, 100, "t", "", shapes)))))
    assert pixels[20, 24:36].max() < 80 and pixels[20, 44:56].min() > 240  # drawn, left out
    assert 120 < pixels[80, 100].mean() < 160
    assert tuple(pixels[140, 40]) == (255, 0, 0)
    dark = np.argwhere(pixels[120:200, 60:140].mean(2) < 120)
    assert np.ptp(dark[:, 1]) > 2 * np.ptp(dark[:, 0])  # a bar that lies
