from dataclasses import astuple

import numpy as np
import pytest
from sklearn import metrics as sk

from vitrail import rng
from vitrail.errors import DataError
from vitrail.metrics import bootstrap as intervals
from vitrail.metrics.bootstrap import bootstrap
from vitrail.metrics.classification import compute_classification_metrics

KEY = rng.derive_server_key(1).at("intervals")
NAMES = ("accuracy", "balanced_accuracy", "auroc")


def sample(examples, classes, seed=0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, examples)
    z = (draw.normal(size=(examples, classes)) + np.eye(classes)[y]) * 4
    return z.round() / 4, y  # quarters: differences are exact, so ties are ties


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 4])
def test_weights_agree_with_a_literal_loop_over_repeated_rows(name, classes):
    z, y = sample(25, classes)
    patients = np.array([f"p{i % 9}" for i in range(25)])
    fast = getattr(intervals, name)(z, y, classes)
    slow = intervals.make_statistic(
        lambda rows: compute_classification_metrics(z[rows], y[rows], classes)[name]
    )
    got, oracle = (bootstrap(f, patients, KEY, repeats=200) for f in (fast, slow))
    assert astuple(got) == pytest.approx(astuple(oracle), abs=1e-12)
    assert got.low < got.value < got.high and got.groups == 9 and got.repeats == 200


def test_weighted_auroc_agrees_with_sklearn_sample_weights():
    z, y = sample(60, 2, seed=4)
    weights = np.random.default_rng(1).integers(0, 4, (10, 60)).astype(float)
    ours = intervals.auroc(z, y, 2)(weights)
    for row, value in zip(weights, ours):
        assert value == pytest.approx(sk.roc_auc_score(y, z[:, 1] - z[:, 0], sample_weight=row))


def test_images_of_one_patient_are_drawn_together():
    member = np.array([0, 0, 1, 2, 2, 2])
    blocks = np.concatenate(list(intervals.draw_resamples(member, 3, KEY, 50)))
    assert blocks.shape == (50, 6)
    assert (blocks[:, 0] == blocks[:, 1]).all() and (blocks[:, 3] == blocks[:, 5]).all()
    assert (blocks[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert len(np.unique(blocks, axis=0)) > 1


def test_duplicated_images_widen_the_interval_only_when_patients_are_named():
    z, y = sample(40, 2, seed=2)
    z5, y5 = np.repeat(z, 5, axis=0), np.repeat(y, 5)
    patients = np.repeat(np.arange(40), 5)
    statistic = intervals.accuracy(z5, y5, 2)
    honest, naive = bootstrap(statistic, patients, KEY), bootstrap(statistic, 200, KEY)
    single = bootstrap(intervals.accuracy(z, y, 2), 40, KEY)
    assert (honest.low, honest.high) == pytest.approx((single.low, single.high))
    assert honest.high - honest.low > 1.6 * (naive.high - naive.low)


def test_covers_a_known_share_about_as_often_as_it_says():
    truth, size, trials = 0.7, 80, 300
    draw = np.random.default_rng(5)
    covered = 0
    for trial in range(trials):
        right = draw.random(size) < truth
        z = np.stack([right, ~right], axis=1).astype(float)
        found = bootstrap(intervals.accuracy(z, np.zeros(size, int), 2), size, KEY.at(trial), 400)
        covered += found.low <= truth <= found.high
    assert 0.90 <= covered / trials <= 0.98


def test_same_key_same_interval_and_memory_blocks_change_nothing(monkeypatch):
    z, y = sample(30, 3)
    statistic = intervals.balanced_accuracy(z, y, 3)
    whole = bootstrap(statistic, 30, KEY, 100)
    assert whole == bootstrap(statistic, 30, KEY, 100)
    assert whole != bootstrap(statistic, 30, KEY.at("other"), 100)
    monkeypatch.setattr(intervals, "BLOCK", 90)
    assert bootstrap(statistic, 30, KEY, 100) == whole


def test_resamples_without_a_value_are_counted_and_left_out():
    y = np.array([1] + [0] * 9)
    z = np.random.default_rng(0).normal(size=(10, 2))
    found = bootstrap(intervals.auroc(z, y, 2), 10, KEY, 1000)
    assert 250 < found.undefined < 450  # (9/10)^10 = 0.35 of them miss the positive
    assert found.low is not None and 0 <= found.low <= found.high <= 1
    rare = intervals.make_statistic(lambda rows: 1.0 if len(set(rows.tolist())) == 10 else None)
    mostly = bootstrap(rare, 10, KEY, 200)
    assert mostly.value == 1.0 and mostly.low is None and mostly.undefined > 100


@pytest.mark.parametrize("name", NAMES)
def test_too_little_to_resample(name):
    z, y = sample(6, 2)
    one = bootstrap(getattr(intervals, name)(z, y, 2), ["p"] * 6, KEY)
    assert one.value is not None and one.low is None and one.high is None and one.groups == 1
    none = bootstrap(getattr(intervals, name)(np.zeros((0, 2)), [], 2), 0, KEY)
    assert none.value is None and none.low is None
    same = bootstrap(getattr(intervals, name)(z, np.zeros(6, int), 2), 6, KEY, 50)
    assert (same.value is None) == (name == "auroc")


def test_unusable_logits():
    z, y = sample(10, 2)
    z[3] = np.nan
    y[3] = 0  # where argmax would land
    assert (
        bootstrap(intervals.accuracy(z, y, 2), 10, KEY).value
        == compute_classification_metrics(z, y, 2)["accuracy"]
    )
    with pytest.raises(DataError, match="ranked"):
        intervals.auroc(z, y, 2)


@pytest.mark.parametrize(
    ("repeats", "level"), [(0, 0.95), (10, 0.0), (10, 1.0), (10, float("nan"))]
)
def test_nonsense_is_refused(repeats, level):
    with pytest.raises(DataError):
        bootstrap(intervals.make_statistic(lambda rows: 1.0), 3, KEY, repeats, level)
