"""The audit's own table: what counts as found, as first and as a false alarm."""

from __future__ import annotations

import pytest
from experiments.tables.audit_trial import Case, PairScore, run_cases
from experiments.tables.audit_trial_figure import draw_p_values
from experiments.tables.audit_trial_table import (
    collect_unbiased_p_values,
    exact_interval,
    summarize,
    summarize_by_kind,
)
from PIL import Image

from vitrail.config import parse
from vitrail.sweep.cells import make_cells


def made(truth, scores, hit=None, detail=""):
    kind = "emoji" if truth else "none"
    pairs = tuple(
        PairScore(site, label, score, 1 / (1 + score), "biased" if score > 5 else "clear")
        for site, label, score in scores
    )
    return Case("x", kind, "iid", truth, pairs, hit, None if hit is None else 0.5, detail)


def test_found_first_and_inside_are_counted_by_federation():
    good = made(
        ("a", "1"), [("a", "1", 40.0), ("a", "2", 1.0), ("b", "1", 2.0), ("a", "3", 0.5)], 0.9
    )
    poor = made(
        ("a", "1"), [("a", "1", 1.5), ("a", "2", 2.0), ("b", "1", 1.0), ("a", "3", 1.0)], 0.9
    )
    unseen = made(("a", "1"), [("b", "1", 1.0), ("b", "2", 1.0)])
    found = summarize([good, poor, unseen])
    assert (found.biased, found.judged, found.first, found.named) == (3, 2, 1, 1)
    assert found.inside == (1, 1)  # only marks that were found have a place to be right about


def test_a_false_alarm_is_an_unbiased_federation_with_any_biased_verdict():
    quiet = made(None, [("a", "1", 1.0), ("a", "2", 2.0)])
    loud = made(None, [("a", "1", 40.0), ("b", "2", 1.0)])
    found = summarize([quiet, loud])
    assert (found.unbiased, found.false_alarms) == (2, 1)


def test_marks_are_listed_apart_with_those_that_were_missed():
    seen = made(("a", "1"), [("a", "1", 40.0), ("b", "1", 2.0), ("b", "2", 1.0)], 0.9, "0.2")
    missed = made(("a", "1"), [("a", "1", 1.0), ("b", "1", 2.0), ("b", "2", 1.0)], 0.9, "x 0.5")
    quiet = made(None, [("a", "1", 1.0)])
    lines = summarize_by_kind([seen, missed, quiet]).splitlines()[2:]
    assert lines == [
        "| emoji 0.2 | iid | 1/1 | 1 | 1 | 1/1 |",
        "| emoji x 0.5 | iid | 1/1 | 0 | 0 | - |",
    ]
    assert collect_unbiased_p_values([seen, missed, quiet]) == [0.5]


def test_the_picture_of_p_values_is_a_small_png(tmp_path):
    draw_p_values([0.01, 0.5, 0.5, 1.0], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.format == "PNG" and picture.width > 300
    assert (tmp_path / "a.png").stat().st_size < 30_000


def test_an_interval_against_known_values():
    low, high = exact_interval(3, 60)
    assert (low, high) == pytest.approx((0.01043, 0.13918), abs=1e-4)
    assert exact_interval(0, 10)[0] == 0.0 and exact_interval(10, 10)[1] == 1.0
    assert exact_interval(0, 0) == (0.0, 1.0)


def test_a_grid_is_played_once_and_read_back(tmp_path):
    grid = parse(
        {
            "data": {
                "source": "embedded",
                "image_size": 32,
                "aviary": {"images": 120, "classes": 2},
            },
            "partition": {"sites": 2},
            "model": {"backbone": "lenet"},
            "sweep": {"seeds": [1], "bias": [[], [{"kind": "patch", "sites": [0], "size": 0.4}]]},
        }
    )
    told: list[str] = []
    first = run_cases(make_cells(grid), tmp_path, lambda n, of, name: told.append(name))
    again = run_cases(make_cells(grid), tmp_path, lambda n, of, name: told.append(name))
    assert len(told) == 2 and first == again
    assert [case.mark for case in first] == ["none", "patch 0.4"]
    (marked,) = [p for p in first[1].scores if (p.site, p.label) == first[1].truth]
    assert marked.raw_p < 0.05
