"""Paired comparisons of two classifiers against counts by hand and statsmodels-free formulas."""

import math

import numpy as np
import pytest
from scipy import stats

from vitrail.metrics.paired_images import balance_by_site, compare_paired


def make_pair(both, mine, theirs, neither):
    right = [1] * both + [1] * mine + [0] * theirs + [0] * neither
    other = [1] * both + [0] * mine + [1] * theirs + [0] * neither
    return np.array(right, bool), np.array(other, bool)


def test_difference_and_interval_are_those_of_paired_proportions():
    n, b, c = 1000, 120, 80
    found = compare_paired(*make_pair(500, b, c, 300), margin=0.03)
    error = math.sqrt(b + c - (b - c) ** 2 / n) / n  # Agresti, paired proportions
    assert found.difference == pytest.approx((b - c) / n) and found.disagree == pytest.approx(0.2)
    assert found.low == pytest.approx((b - c) / n - 1.959964 * error, abs=1e-6)
    assert found.high == pytest.approx((b - c) / n + 1.959964 * error, abs=1e-6)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(b - c) / n / error))


def test_level_needs_both_ends_inside_the_margin():
    """Two one-sided tests at 5 % are the interval at 90 % inside the margin."""
    for b, c, n in [(60, 60, 2000), (100, 60, 2000), (90, 20, 2000), (5, 5, 60)]:
        found = compare_paired(*make_pair(n // 2, b, c, n // 2 - b - c), margin=0.03)
        error = (found.high - found.difference) / stats.norm.ppf(0.975)
        reach = stats.norm.ppf(0.95) * error
        inside = found.difference - reach > -0.03 and found.difference + reach < 0.03
        assert (found.p_level < 0.05) == inside


def test_equal_answers_are_level_and_nothing_to_compare_is_an_error():
    same = compare_paired(*make_pair(5, 0, 0, 5), margin=0.03)
    assert (same.difference, same.p, same.p_level) == (0.0, 1.0, 0.0)
    worse = compare_paired(*make_pair(0, 0, 7, 0), margin=0.03)
    assert (worse.difference, worse.p, worse.p_level) == (-1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="same images"):
        compare_paired(np.zeros(0, bool), np.zeros(0, bool), 0.03)
    with pytest.raises(ValueError, match="same images"):
        compare_paired(np.zeros(2, bool), np.zeros(3, bool), 0.03)


def test_knowing_only_the_frequent_class_is_one_over_the_classes_of_a_site():
    labels = np.array([0] * 9 + [1] + [2] * 8 + [3, 4])
    site = np.repeat([0, 1], 10)
    prior = np.array([True] * 9 + [False] + [True] * 8 + [False] * 2)
    assert prior.mean() == 0.85
    assert balance_by_site(prior, labels, site) == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert math.isnan(balance_by_site(prior[:0], labels[:0], site[:0]))
