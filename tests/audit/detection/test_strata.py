"""A difference that a known column makes vanishes within its groups, and a mark does not."""

import itertools

import numpy as np
import pytest

from vitrail.audit.detection.histogram import BINS, CENTERS, count_bins
from vitrail.audit.detection.strata import (
    compare_within_groups,
    group_values,
    list_group_columns,
)
from vitrail.rng import derive_server_key

KEY = derive_server_key(8).at("strata")


def count(values, groups):
    return np.array([count_bins(values[groups == g]) for g in (0, 1)])


def draw_sites(draw, mark, size=60):
    """The site has the first view in 95 % of its images, others in half; a view adds 1.5."""
    tables = []
    for share, extra, many in ((0.95, mark, size), (0.5, 0.0, 4 * size)):
        view = (draw.uniform(size=many) > share).astype(int)
        tables.append(count(draw.normal(size=many) + 1.5 * (view == 0) + extra, view))
    return tables


def test_a_view_explains_what_it_makes_and_not_a_mark():
    explained, marked = 0, 0
    for repeat in range(40):
        draw = KEY.at("draw", repeat).numpy()
        one = compare_within_groups(*draw_sites(draw, 0.0), KEY.at(repeat))
        two = compare_within_groups(*draw_sites(draw, 1.5), KEY.at(repeat))
        explained += one.explains
        marked += two.explains
    assert explained >= 36 and marked == 0


def test_within_groups_the_p_value_is_exact():
    """At most a share a of p-values is at most a, for sites that differ in their views alone."""
    p = [
        compare_within_groups(
            *draw_sites(KEY.at("null", n).numpy(), 0.0, 20), KEY.at("p", n)
        ).p_value
        for n in range(300)
    ]
    for level in (0.05, 0.1, 0.2):
        assert np.mean(np.array(p) <= level) <= level + 3 * np.sqrt(level * (1 - level) / 300)


def test_the_p_value_is_that_of_all_deals():
    """Two images here, two there in each of two groups: every deal can be listed."""
    site, others = np.zeros((2, BINS), np.int64), np.zeros((2, BINS), np.int64)
    site[0, [20, 25]] = site[1, [18, 22]] = others[0, [10, 21]] = others[1, [12, 19]] = 1
    level = np.arcsinh(CENTERS)
    pools = [np.repeat(np.arange(BINS), (site + others)[g]) for g in (0, 1)]
    deals = [
        sum(level[list(hand)].sum() for hand in hands)
        for hands in itertools.product(*(itertools.combinations(pool, 2) for pool in pools))
    ]
    observed = sum(level[np.repeat(np.arange(BINS), site[g])].sum() for g in (0, 1))
    literal = np.mean(np.array(deals) >= observed - 1e-9)
    assert compare_within_groups(site, others, KEY).p_value == pytest.approx(literal, abs=0.03)


def test_groups_that_nobody_shares_cannot_be_told_apart():
    site, others = np.zeros((2, BINS), np.int64), np.zeros((2, BINS), np.int64)
    site[0, 20], others[1, 10] = 5, 9
    one = compare_within_groups(site, others, KEY)
    assert one.shared == 0 and one.explains and one.p_value == 1
    assert compare_within_groups(0 * site, others, KEY).p_value == 1


def test_columns_are_words_or_thirds():
    extra = {
        "view": np.array(["AP", "PA", "AP"]),
        "age": np.array([1.0, 50.0, 80.0]),
        "same": np.array(["x", "x", "x"]),
        "name": np.array([f"n{k}" for k in range(3)] * 1),
    }
    extra["points"] = np.arange(24.0).reshape(3, 4, 2)
    assert list_group_columns(extra) == ["view", "age", "name"]
    assert list_group_columns({"id": np.arange(20).astype(str)}) == []
    assert group_values(extra["view"], ("AP",), None).tolist() == [0, -1, 0]
    edges = (10.0, 60.0)
    assert group_values(np.array([1.0, 50.0, 80.0, np.nan]), None, edges).tolist() == [0, 1, 2, 0]
