"""The interval: its formula by hand, its level where honest sites differ, outliers that hide."""

import numpy as np
import pytest
from experiments.tables.audit_level import Cell, count_outside
from scipy import stats

from vitrail.audit.detection.prediction_interval import (
    Bound,
    Effect,
    compute_bounds,
    compute_effect,
    compute_limits,
)
from vitrail.metrics.binomial import exact_interval


def make_effects(count, seed=0, error=0.05):
    draw = np.random.default_rng(seed)
    return [Effect(*draw.normal([0.6, 0.6], 0.2), error) for _ in range(count)]


def limit_by_hand(effects, labels, at):
    """Literally, where nothing is an outlier: of the mean, for the pair at one position."""
    rest = np.array([e.mean for k, e in enumerate(effects) if k != at])
    usual = np.mean([e.error for k, e in enumerate(effects) if k != at])
    variance = max(rest.var(ddof=1), usual)
    freedom = sum(labels.count(c) - 1 for c in set(labels)) - 1
    wider = max(1, (variance - usual + effects[at].error) / variance)
    quantile = stats.t.ppf(1 - 0.05 / (2 * len(effects)), freedom)
    return rest.mean() + quantile * np.sqrt(variance * (wider + 1 / (freedom + 1)))


def test_the_limit_is_that_of_the_formula():
    effects, labels = make_effects(12), [0, 1, 2] * 4
    effects[3] = Effect(0.5, 0.5, 0.4)  # few images
    values = np.array([[[e.mean for e in effects]], [[e.excess for e in effects]]])
    errors = np.array([[e.error for e in effects]])
    limits = compute_limits(values, errors, labels)
    for at in range(12):
        assert limits[0, 0, at] == pytest.approx(limit_by_hand(effects, labels, at))
    assert limits[0, 0, 3] > limits[0, 0].mean()


def test_two_outliers_do_not_hide_each_other():
    effects, labels = make_effects(12), [0, 1, 2] * 4
    effects[2] = effects[7] = Effect(4.0, 4.0, 0.05)
    outside = [b.score > 1 and b.size > b.limit for b in compute_bounds(effects, labels)]
    assert outside == [at in (2, 7) for at in range(12)]


def test_an_excess_alone_is_seen():
    effects = make_effects(12)
    effects[5] = Effect(0.7, 9.0, 0.05)
    bound = compute_bounds(effects, [0, 1, 2] * 4)[5]
    assert bound.size == 9.0 > bound.limit


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_too_few_pairs_have_no_interval(count):
    bounds = compute_bounds(make_effects(count), [0] * count)
    assert all(b.limit == float("inf") for b in bounds) and len(bounds) == count


@pytest.mark.parametrize("count", [4, 5, 40])
def test_equal_effects_are_inside(count):
    for bound in compute_bounds([Effect(1.0, 1.0, 0.1)] * count, list(range(2)) * (count // 2 + 1)):
        assert isinstance(bound, Bound) and np.isfinite(bound.limit) and bound.size < bound.limit


def test_the_effect_of_histograms_by_hand():
    site, other = np.zeros(32, np.int64), np.zeros(32, np.int64)
    site[20], other[15], other[16] = 5, 4, 4
    level = np.linspace(-np.arcsinh(60), np.arcsinh(60), 65)[1::2]
    effect = compute_effect(site, [other], 0.0)
    scores = np.repeat(level[[15, 16]], 4)
    assert effect.mean == pytest.approx((level[20] - scores.mean()) / scores.std())
    assert effect.error == pytest.approx(1 / 5 + 1 / 8)
    assert compute_effect(site, [other], 0.5).mean == pytest.approx(effect.mean / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", [Cell(0.3, 3, 4, False), Cell(0.3, 4, 10, False), Cell(0.5, 8, 2, True)]
)
def test_honest_sites_that_differ_lie_outside_in_five_percent(cell):
    """The former interval, made of the larger of both effects as they are, let a pair out in 28,
    49 and 25 % of 400."""
    alarms, _ = count_outside(cell, 300)
    assert exact_interval(alarms, 300)[0] <= 0.05


@pytest.mark.slow
def test_a_mark_lies_outside():
    assert count_outside(Cell(0.1, 4, 4, False, mark=2.0), 100)[1] >= 95
