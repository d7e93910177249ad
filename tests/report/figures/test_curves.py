import math
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from vitrail.errors import ConfigError, DataError
from vitrail.report.charts.label_places import spread_labels
from vitrail.report.charts.palette import DASHES, SERIES, get_light_color
from vitrail.report.figures.curves import draw_curves, summarize_history


def history(seed=0, rounds=20, level=0.5):
    draw = np.random.default_rng(seed)
    return [
        (r, level * (1 - math.exp(-r / 5)) + draw.normal(0, 0.01)) for r in range(1, rounds + 1)
    ]


def words(path):
    return [t.text for t in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_summary_is_mean_and_sd_over_the_seeds_that_have_the_round():
    by_seed = {
        1: [(1, 0.2), (2, 0.4)],
        2: [(2, 0.6), (1, 0.4), (3, 0.9)],
        3: [(1, None), (2, math.nan)],
    }
    curve = summarize_history(by_seed)
    assert curve.rounds == [1, 2, 3]
    assert curve.mean == pytest.approx([0.3, 0.5, 0.9])
    assert curve.sd[:2] == pytest.approx([np.std([0.2, 0.4], ddof=1), np.std([0.4, 0.6], ddof=1)])
    assert math.isnan(curve.sd[2])
    assert summarize_history([]).rounds == [] and summarize_history({}).rounds == []


@pytest.mark.parametrize("count", [1, 2, 7, 12, 30])
def test_every_method_is_named_and_no_names_overlap(tmp_path, count):
    histories = {f"method {i:02}": {s: history(s) for s in range(3)} for i in range(count)}
    draw_curves(histories, tmp_path / "a.svg", "accuracy")
    texts = ET.parse(tmp_path / "a.svg").iter("{http://www.w3.org/2000/svg}text")
    heights = {t.text: float(t.get("y")) for t in texts if t.text.startswith("method")}
    assert set(heights) == set(histories)
    assert (np.diff(sorted(heights.values())) > 12).all()  # a line apart
    draw_curves(histories, tmp_path / "a.png", "accuracy")
    with Image.open(tmp_path / "a.png") as image:
        assert image.width == 1440 and np.asarray(image.convert("L")).std() > 5


def test_names_lie_inside_the_picture(tmp_path):
    draw_curves({"m" * 40: history(), "short": history(1)}, tmp_path / "a.png", "y" * 20)
    pixels = np.asarray(Image.open(tmp_path / "a.png").convert("L"))
    edge = np.concatenate(
        [pixels[:, :3].ravel(), pixels[:, -3:].ravel(), pixels[:3].ravel(), pixels[-3:].ravel()]
    )
    assert edge.min() == 255


def test_lines_differ_without_color(tmp_path):
    pairs = {(i % len(SERIES), i % len(DASHES)) for i in range(28)}
    assert len(pairs) == 28
    both = {f"method {i}": {s: history(s) for s in range(3)} for i in range(4)}
    draw_curves(both, tmp_path / "a.svg", "accuracy")
    paths = ET.parse(tmp_path / "a.svg").iter("{http://www.w3.org/2000/svg}path")
    long = [p.get("stroke-dasharray") for p in paths if len(p.get("d")) > 150 and p.get("stroke")]
    assert len(set(long)) == 4  # with bands too


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_contrast_and_lines_can_be_seen_on_white():
    assert 1.05 / (luminance(get_light_color("ink")) + 0.05) > 7
    assert min(1.05 / (luminance(get_light_color(c)) + 0.05) for c in SERIES) > 2


def test_hostile_names_are_only_text(tmp_path):
    names = ["$\\frac{", "<script>alert(1)</script>", "a & b", "", "line\nbreak", "x" * 200]
    draw_curves({n: history() for n in names}, tmp_path / "a.svg", "$y", title="</svg>")
    texts = words(tmp_path / "a.svg")
    assert {"$\\frac{", "<script>alert(1)</script>", "a & b", "line break", "$y", "</svg>"} <= set(
        texts
    )
    assert max(map(len, texts)) <= 40


def test_gaps_single_points_and_flat_lines_are_drawn(tmp_path):
    odd = {
        "one": [(3, 0.5)],
        "flat": [(0, 1.0), (9, 1.0)],
        "gap": [(0, None), (5, math.nan), (7, 0.2)],
    }
    draw_curves({**odd, "never": [(0, None)]}, tmp_path / "a.svg", "loss")
    assert {"one", "flat", "gap"} <= set(words(tmp_path / "a.svg"))
    assert "never" not in words(tmp_path / "a.svg")
    draw_curves({"one": odd["one"]}, tmp_path / "point.png", "loss")
    pixels = np.asarray(Image.open(tmp_path / "point.png").convert("RGB")).astype(int)
    blue = (pixels[..., 2] - pixels[..., 0] > 100).sum()
    assert blue > 60  # a mark, not only the thin line to the name


def test_nothing_to_draw_and_unknown_formats_are_refused(tmp_path):
    with pytest.raises(DataError, match="accuracy"):
        draw_curves({}, tmp_path / "a.png", "accuracy")
    with pytest.raises(DataError):
        draw_curves({"m": [(1, math.nan)]}, tmp_path / "a.png", "accuracy")
    with pytest.raises(ConfigError, match=r"\.png"):
        draw_curves({"m": history()}, tmp_path / "a.jpg", "accuracy")
    assert list(tmp_path.iterdir()) == []


def test_same_input_same_bytes_and_no_matplotlib(tmp_path):
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        draw_curves({"m": {1: history(), 2: history(1)}}, tmp_path / name, "accuracy")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    probe = "import sys, vitrail.report.figures.curves; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


@pytest.mark.parametrize("count", [0, 1, 2, 5, 12])
def test_spread_keeps_order_gap_and_bounds(count):
    draw = np.random.default_rng(count)
    for _ in range(50):
        wanted = (draw.random(count) ** 3).tolist()
        places = spread_labels(wanted, 0.08, 0.0, 1.0)
        order = np.argsort(wanted, kind="stable")
        assert all(-1e-9 <= p <= 1 + 1e-9 for p in places)
        assert (np.diff(np.array(places)[order]) >= 0.08 - 1e-9).all()
    far = np.linspace(0.05, 0.95, count).tolist()
    assert count > 10 or spread_labels(far, 0.08, 0.0, 1.0) == pytest.approx(far)


def test_spread_shrinks_when_all_do_not_fit():
    assert spread_labels([0.5] * 5, 1.0, 0.0, 1.0) == pytest.approx([0, 0.25, 0.5, 0.75, 1.0])


def test_steps_that_multiply_get_ticks_where_something_was_measured(tmp_path):
    path = tmp_path / "log.svg"
    draw_curves({"a": [(2, 0.1), (8, 0.2), (1000, 0.4)]}, path, "accuracy", "epsilon", log=True)
    text = path.read_text()
    assert all(f">{tick}<" in text for tick in ("2", "8", "1000")) and ">400<" not in text
