"""The pointing game: a model that looks at the truth wins it, one that does not gets chance."""

import numpy as np
import pytest
import torch
from experiments.tables import truth as module
from experiments.tables.truth import (
    ANY,
    CLOSE,
    DIFFERS,
    INSIDE,
    NEAR,
    RIVAL,
    PointedPrediction,
    _score_hits,
    _Truth,
    compute_metrics,
    format_pointing,
    measure_pointing,
)
from scipy.stats import binomtest

import vitrail
from vitrail.data.aviary.birds import derive_aviary_key, draw_birds
from vitrail.errors import DataError
from vitrail.explain.faithfulness import compute_pointing_chance, points_at_region
from vitrail.rng import derive_server_key


@pytest.fixture(scope="module")
def birds():
    return draw_birds(60, 3, derive_aviary_key(0), 32)


@pytest.fixture
def known(birds):
    return _Truth(birds, module.find_discriminating_parts(3, 0))


def test_masks_are_the_parts_that_tell_a_class_from_another(birds, known):
    table = module.find_discriminating_parts(3, 0)
    for row in range(20):
        label = int(birds.labels[row])
        parts = birds.extra["part_mask"][row]
        expected = np.zeros_like(parts, bool)
        for part in range(table.shape[2]):
            if any(table[label, other, part] for other in range(3)):
                expected |= parts == part + 1
        one = PointedPrediction(row, label, (label + 1) % 3, (0, 0, 1, 1))
        assert np.array_equal(known.mask(DIFFERS, one), expected)
        assert np.array_equal(known.mask(ANY, one), parts > 0)
        telling = np.flatnonzero(table[label, one.rival]) + 1
        assert np.array_equal(known.mask(RIVAL, one), np.isin(parts, telling))


def test_looking_at_the_part_wins_and_looking_anywhere_is_chance(birds, known):
    name = DIFFERS
    right, blind = [], []
    spread = derive_server_key(3).numpy()
    for row in range(60):
        label = int(birds.labels[row])
        mask = known.mask(name, PointedPrediction(row, label, 0, (0, 0, 1, 1)))
        ys, xs = np.nonzero(np.asarray(mask)[4:-4, 4:-4])
        if len(xs):
            x, y = int(xs[0]) + 4, int(ys[0]) + 4
            right.append(PointedPrediction(row, label, 0, (x - 4, y - 4, x + 4, y + 4)))
        for _ in range(20):
            x, y = (int(v) for v in spread.integers(0, 25, 2))
            blind.append(PointedPrediction(row, label, 0, (x, y, x + 8, y + 8)))
    won = compute_metrics(*_score_hits(right, known, name), derive_server_key(1), 200)
    lost = compute_metrics(*_score_hits(blind, known, name), derive_server_key(1), 200)
    assert won["rate"] == 1 and won["ratio"] > 2 and 1 < won["low"] < won["ratio"]
    assert won["high"] == pytest.approx(won["ratio"])
    assert 0.7 < lost["ratio"] < 1.3 and lost["low"] < 1 < lost["high"] + 0.3
    odds = [compute_pointing_chance(one.box, known.mask(name, one)) for one in right]
    hits = [points_at_region(one.box, known.mask(name, one)) for one in right]
    assert won["ratio"] == pytest.approx(sum(hits) / sum(odds))


def test_all_misses_do_not_look_like_certainty(known):
    corner = [PointedPrediction(row, 0, 1, (0, 0, 2, 2)) for row in range(5)]
    found = compute_metrics(*_score_hits(corner, known, ANY), derive_server_key(1), 50)
    limits = binomtest(0, 5).proportion_ci(0.95, "exact")
    assert found["rate"] == found["ratio"] == found["low"] == 0
    assert found["high"] == pytest.approx(limits.high / found["chance"])


def test_boxes_and_points_of_photographs(birds):
    from dataclasses import replace

    boxes = np.tile(np.float32([4, 8, 20, 16]), (60, 1))
    points = np.full((60, 2, 2), np.nan, np.float32)
    points[:, 0] = (10, 20)
    images = replace(birds, boxes=boxes, extra={"parts": points})
    known = _Truth(images, None)
    assert known.names == (INSIDE, CLOSE)
    one = PointedPrediction(0, 0, 1, (0, 0, 2, 2))
    assert int(known.mask(INSIDE, one).sum()) == 16 * 8
    near = known.mask(CLOSE, one)
    assert near[20, 10] and near[20, 12] and not near[20, 14]
    assert int(near.sum()) == pytest.approx(np.pi * (32 * NEAR) ** 2, rel=0.2)
    nothing = replace(images, extra={"parts": points * np.nan})
    empty = compute_metrics(
        *_score_hits([one], _Truth(nothing, None), CLOSE), derive_server_key(1), 10
    )
    assert empty == {
        "images": 0, "rate": None, "chance": None, "ratio": None, "low": None, "high": None
    }  # fmt: skip


def test_truth_of_a_run_and_its_table(tiny):
    run = tiny(
        method={"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "local_epochs": 1},
    )
    found = measure_pointing(run, repeats=50)
    assert 0 < found["correct"] < found["images"]
    assert [row["target"] for row in found["targets"]] == [RIVAL, DIFFERS, ANY]
    for row in found["targets"]:
        assert 0 <= row["rate"] <= 1 and 0 < row["chance"] < 1
        assert row["ratio"] == pytest.approx(row["rate"] / row["chance"])
    assert measure_pointing(vitrail.load(run.path), repeats=50) == found
    table = format_pointing(found)
    assert len(table.splitlines()) == 5 and ANY in table


def test_images_without_any_truth_are_refused(tiny, birds):
    from dataclasses import replace

    run = tiny(run={"rounds": 1})
    with pytest.raises(DataError, match="nothing is known"):
        _Truth.of(run, replace(birds, extra={}))
    with torch.no_grad(), pytest.raises(vitrail.errors.ConfigError, match="no parts"):
        measure_pointing(run)
