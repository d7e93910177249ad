"""P-values from scores without bias, and Holm's correction."""

import json

import numpy as np
import pytest

from vitrail.audit.null import _FILE, Null, holm, shipped
from vitrail.rng import server


def sample(count=2000, seed=0):
    return server(seed).at("null").numpy().normal(size=count)


def test_p_values_of_the_null_are_uniform():
    null = Null.of(sample())
    fresh = np.array([null.p_value(score) for score in sample(4000, 1)])
    for level in (0.01, 0.05, 0.2, 0.5, 0.9):
        error = 3 * np.sqrt(level * (1 - level) * (1 / 4000 + 1 / 2000))
        assert abs((fresh <= level).mean() - level) < error
    own = np.array([null.p_value(score) for score in null.scores])
    assert abs((own <= 0.05).mean() - 0.05) < 0.002 and own.max() == 1.0


def test_a_larger_score_is_never_less_sure():
    null = Null.of(sample(500))
    grid = np.linspace(-6, 12, 3001)
    found = np.array([null.p_value(score) for score in grid])
    assert bool((np.diff(found) <= 0).all()) and 0 < found[-1] < 1e-6 and found[0] == 1.0


def test_the_tail_is_exponential():
    """For exponential scores the truth is known far beyond the largest one seen."""
    null = Null.of(server(3).numpy().exponential(size=5000))
    for score in (6.0, 9.0, 14.0):
        assert np.log(null.p_value(score)) == pytest.approx(-score, rel=0.15)


@pytest.mark.parametrize("scores", [[], [1.0], [2.0] * 30, [0.0, 1.0, 2.0, 3.0]])
def test_few_scores_give_ranks_and_no_false_certainty(scores):
    null = Null.of(scores)
    for score in (-1e9, 0.5, 1e9):
        rank = (1 + sum(s >= score for s in scores)) / (1 + len(scores))
        assert null.p_value(score) == pytest.approx(rank)


def test_the_order_of_the_scores_does_not_matter():
    values = sample(300)
    assert Null.of(values[::-1], "a") == Null.of(values, "a")


def literal_holm(p_values):
    """Holm 1979: reject the k-th smallest while all smaller ones are rejected."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found = {}
    for rank, at in enumerate(order):
        steps = [(len(p_values) - k) * p_values[order[k]] for k in range(rank + 1)]
        found[at] = min(1.0, max(steps))
    return [found[at] for at in range(len(p_values))]


@pytest.mark.parametrize(
    "p_values",
    [[], [0.03], [1.0, 1.0], [0.01, 0.04, 0.03], [0.02, 0.02, 0.02], [0.0, 0.5, 1e-12]],
)
def test_holm_is_the_literal_rule(p_values):
    assert holm(p_values) == pytest.approx(literal_holm(p_values))


def test_holm_on_many():
    values = server(4).numpy().uniform(size=40).tolist()
    assert holm(values) == pytest.approx(literal_holm(values))
    assert all(c >= p for c, p in zip(holm(values), values))


def test_the_null_that_ships_is_usable():
    stored = json.loads(_FILE.read_text(encoding="utf-8"))
    null = shipped()
    assert len(null.scores) == len(stored["scores"]) >= 100 and null.about == stored["about"] != ""
    assert bool(np.isfinite(null.scores).all())
    assert null.p_value(max(null.scores) + 5) < 0.05 < null.p_value(float(np.median(null.scores)))
