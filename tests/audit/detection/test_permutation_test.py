"""The exact test: its p-values against all permutations by hand, and under its null."""

import itertools

import numpy as np
import pytest

from vitrail.audit.detection.histogram import BINS, CENTERS, count_bins
from vitrail.audit.detection.permutation_test import compare_membership
from vitrail.rng import derive_server_key

KEY = derive_server_key(4)


def _standard(values, chosen):
    """The larger of a rank sum and a mean excess, literally, over the values' own bins."""
    bins = np.array([int(np.flatnonzero(count_bins(np.array([v])))[0]) for v in values])
    ranks = np.array([(bins < b).sum() + ((bins == b).sum() + 1) / 2 for b in bins])
    level = np.arcsinh(CENTERS)
    edge = np.sort(bins)[int(np.ceil(0.8 * len(bins))) - 1]
    excess = np.maximum(level[bins] - level[edge], 0)
    count, size = len(values), len(chosen)
    best = -np.inf
    for scores in (ranks, excess):
        variance = scores.var(ddof=1) * size * (count - size) / count
        if variance > 1e-20:
            gap = scores[list(chosen)].sum() - size * scores.mean()
            best = max(best, gap / np.sqrt(variance))
    return best if best > -np.inf else 0.0


@pytest.mark.parametrize("seed", range(4))
def test_the_p_value_is_the_share_of_all_ways_to_deal_the_images_out(seed):
    draw = np.random.default_rng(seed)
    values = np.concatenate([draw.normal(1.0, 1, 3), draw.normal(0, 1, 7)])
    ways = [_standard(values, way) for way in itertools.combinations(range(10), 3)]
    exact = np.mean([one >= ways[0] - 1e-9 for one in ways])
    result = compare_membership(count_bins(values[:3]), count_bins(values[3:]), KEY.at(seed), 50)
    assert result.statistic == pytest.approx(ways[0])
    error = 4 * np.sqrt(exact * (1 - exact) / result.draws) + 2 / result.draws
    assert result.p_value == pytest.approx(exact, abs=error)


@pytest.mark.parametrize("site", [2, 5, 20])
def test_where_sites_are_equal_small_p_values_are_as_rare_as_they_should_be(site):
    draw = np.random.default_rng(site)
    p_values = []
    for at in range(300):
        values = draw.standard_t(3, 60) * 2
        one, rest = count_bins(values[:site]), count_bins(values[site:])
        p_values.append(compare_membership(one, rest, KEY.at(site, at), 1).p_value)
    for level in (0.05, 0.1, 0.2):
        share = np.mean(np.array(p_values) <= level)
        assert share <= level + 3 * np.sqrt(level * (1 - level) / 300)


def test_a_mark_on_a_third_of_the_images_is_seen():
    draw = np.random.default_rng(0)
    site, others = draw.normal(0, 1, 60), draw.normal(0, 1, 180)
    site[:20] += 6
    assert compare_membership(count_bins(site), count_bins(others), KEY, 12).p_value < 0.05 / 12


@pytest.mark.parametrize("site", [np.zeros(0), np.ones(3), np.full(3, np.inf), np.full(2, np.nan)])
def test_nothing_to_compare_is_never_certain(site):
    empty, same = count_bins(np.zeros(0)), count_bins(np.ones(5))
    assert compare_membership(count_bins(site), empty, KEY, 5).p_value == 1.0
    assert compare_membership(empty, same, KEY, 5).p_value == 1.0
    if np.isfinite(site).all():
        assert compare_membership(count_bins(site), same, KEY, 5).p_value == 1.0
    assert count_bins(site).sum() == len(site) and len(count_bins(site)) == BINS
