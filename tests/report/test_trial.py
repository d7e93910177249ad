"""The audit's own table: what counts as found, as first and as a false alarm."""

from __future__ import annotations

import pytest

from vitrail.audit.null import Null
from vitrail.config import parse
from vitrail.engine.sweep import cells
from vitrail.report.trial import Case, auc, cases, exact_interval, summarize

NULL = Null.of([i / 100 for i in range(400)])  # 0 to 4


def made(truth, scores, hit=None):
    return Case("x", "emoji" if truth else "none", "iid", truth, tuple(scores), hit)


def test_found_first_and_inside_are_counted_by_federation():
    good = made(
        ("a", "1"), [("a", "1", 40.0), ("a", "2", 1.0), ("b", "1", 2.0), ("a", "3", 0.5)], 0.9
    )
    poor = made(
        ("a", "1"), [("a", "1", 1.5), ("a", "2", 2.0), ("b", "1", 1.0), ("a", "3", 1.0)], 0.9
    )
    unseen = made(("a", "1"), [("b", "1", 1.0), ("b", "2", 1.0)])
    found = summarize([good, poor, unseen], NULL)
    assert (found.biased, found.judged, found.first, found.named) == (3, 2, 1, 1)
    assert found.inside == (1, 1)  # only marks that were found have a place to be right about


def test_a_false_alarm_is_an_unbiased_federation_with_any_biased_verdict():
    quiet = made(None, [("a", "1", 1.0), ("a", "2", 2.0)])
    loud = made(None, [("a", "1", 40.0), ("b", "2", 1.0)])
    found = summarize([quiet, loud], NULL)
    assert (found.unbiased, found.false_alarms) == (2, 1)


def test_the_only_other_class_of_the_biased_site_is_a_consequence():
    two = made(("a", "1"), [("a", "1", 9.0), ("a", "2", 9.5), ("b", "1", 1.0), ("b", "2", 1.0)])
    found = summarize([two], NULL)
    assert found.first == 1 and found.auc == 1.0


def test_area_and_interval_against_known_values():
    import numpy as np

    assert auc(np.array([3.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx(0.875)
    assert np.isnan(auc(np.array([]), np.array([1.0])))
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
    first = cases(cells(grid), tmp_path, lambda n, of, name: told.append(name))
    again = cases(cells(grid), tmp_path, lambda n, of, name: told.append(name))
    assert len(told) == 2 and first == again
    assert [case.kind for case in first] == ["none", "patch"]
    scores = {(site, label): s for site, label, s in first[1].scores}
    assert max(scores, key=lambda key: scores[key])[0] == first[1].truth[0]
