"""P-values from scores without bias."""

import json

import numpy as np
import pytest

from vitrail.audit.detection.null_distribution import (
    _FILE,
    NullDistribution,
    load_shipped_null,
)
from vitrail.rng import derive_server_key


def sample(count=2000, seed=0):
    return derive_server_key(seed).at("null").numpy().normal(size=count)


def test_p_values_of_the_null_are_uniform():
    null = NullDistribution.from_scores(sample())
    fresh = np.array([null.p_value(score) for score in sample(4000, 1)])
    for level in (0.01, 0.05, 0.2, 0.5, 0.9):
        error = 3 * np.sqrt(level * (1 - level) * (1 / 4000 + 1 / 2000))
        assert abs((fresh <= level).mean() - level) < error
    own = np.array([null.p_value(score) for score in null.scores])
    assert abs((own <= 0.05).mean() - 0.05) < 0.002 and own.max() == 1.0


def test_a_larger_score_is_never_less_sure():
    null = NullDistribution.from_scores(sample(500))
    grid = np.linspace(-6, 12, 3001)
    found = np.array([null.p_value(score) for score in grid])
    assert bool((np.diff(found) <= 0).all()) and 0 < found[-1] < 1e-6 and found[0] == 1.0


def test_the_tail_is_exponential():
    """For exponential scores the truth is known far beyond the largest one seen."""
    null = NullDistribution.from_scores(derive_server_key(3).numpy().exponential(size=5000))
    for score in (6.0, 9.0, 14.0):
        assert np.log(null.p_value(score)) == pytest.approx(-score, rel=0.15)


@pytest.mark.parametrize("scores", [[], [1.0], [2.0] * 30, [0.0, 1.0, 2.0, 3.0]])
def test_few_scores_give_ranks_and_no_false_certainty(scores):
    null = NullDistribution.from_scores(scores)
    for score in (-1e9, 0.5, 1e9):
        rank = (1 + sum(s >= score for s in scores)) / (1 + len(scores))
        assert null.p_value(score) == pytest.approx(rank)


def test_the_order_of_the_scores_does_not_matter():
    values = sample(300)
    assert NullDistribution.from_scores(values[::-1], "a") == NullDistribution.from_scores(
        values, "a"
    )


def test_the_null_that_ships_is_usable():
    stored = json.loads(_FILE.read_text(encoding="utf-8"))
    null = load_shipped_null()
    assert len(null.scores) == len(stored["scores"]) >= 100 and null.about == stored["about"] != ""
    assert bool(np.isfinite(null.scores).all())
    assert null.p_value(max(null.scores) + 5) < 0.05 < null.p_value(float(np.median(null.scores)))
