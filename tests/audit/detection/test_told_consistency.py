"""A site that lies in one half is noticed; framing another makes the liar stand out itself."""

import numpy as np
import pytest
from experiments.tables.lying_sites import CLASSES, LABEL, LIAR, UNITS, VICTIM, play
from scipy import stats

from vitrail.audit.detection.class_summary import compute_summary
from vitrail.audit.detection.direction import Direction
from vitrail.audit.detection.exchange import Exchange, SiteFeatures
from vitrail.audit.detection.halves import split_halves
from vitrail.audit.detection.histogram import count_bins
from vitrail.audit.detection.told_consistency import check_told, compute_split_p
from vitrail.rng import derive_server_key

SEEDS = range(5)


def summarize(name, sites):
    liar, victim, noticed, wrong = [], [], [], []
    for seed in SEEDS:
        contrasts, doubts = play(name, sites, seed)
        biased = {(c.site, c.label) for c in contrasts if c.verdict == "biased"}
        liar.append((LIAR, LABEL) in biased)
        victim.append((VICTIM, LABEL) in biased)
        noticed.append(LIAR in doubts)
        wrong.append(bool(set(doubts) - {LIAR}))
    return liar, victim, noticed, wrong


@pytest.mark.parametrize("sites", [3, 4, 8])
@pytest.mark.parametrize("name", ["hides in B", "frames in B"])
def test_a_lie_in_one_half_is_noticed(name, sites):
    _, victim, noticed, wrong = summarize(name, sites)
    assert not any(wrong) and not any(victim)
    assert sum(noticed) >= (4 if sites < 8 else 1)  # more sites, more tests: 70 % of 20 at 8


@pytest.mark.parametrize("sites", [4, 8])
def test_who_frames_another_in_both_halves_stands_out_itself(sites):
    liar, victim, _, _ = summarize("frames in A and B", sites)
    assert sum(liar) >= 4 and not any(victim)


@pytest.mark.parametrize("name", ["a mark, no lie", "no mark, no lie"])
def test_honest_sites_are_not_doubted(name):
    for sites in (3, 4, 8):
        _, _, noticed, wrong = summarize(name, sites)
        assert not any(noticed) and not any(wrong)


def test_a_site_that_tells_of_other_images_hides_and_nothing_shows():
    """What no table can show, said as it is: this test fails on the day it can."""
    liar, _, noticed, _ = summarize("hides in A and B", 4)
    assert not any(liar) and not any(noticed)


def tell_of(make_rows, count, seed):
    """Honest tables of sites whose images have any features."""
    key = derive_server_key(seed).at("honest", count)
    sites = {}
    for at in range(count):
        labels = np.repeat(np.arange(CLASSES), 2 * 12).astype(np.int64)
        halves = split_halves(labels, None, key.at("halves", at))
        rows = make_rows(key.at("site", at).numpy(), len(labels))
        sites[f"s{at}"] = SiteFeatures(rows, labels, halves.a, halves.b, halves.group, CLASSES)
    summaries = {name: site.summarize(UNITS) for name, site in sites.items()}
    exchange = Exchange(summaries, UNITS)
    return exchange, {name: site.count(exchange.directions) for name, site in sites.items()}


def make_rare(draw, count):
    """What most images have not, and some have much of, as colors of flat places."""
    return 30.0 * (draw.random((count, 40)) < 0.04) + 0.01 * draw.normal(size=(count, 40))


def make_odd(draw, count):
    """Heavy tails, and an image that is odd is odd in everything."""
    return draw.normal(size=(count, 40)) * draw.standard_cauchy((count, 1))


def make_constant(draw, count):
    """A spread that half precision cannot tell, about a mean that it rounds."""
    return 0.3 + 1e-4 * draw.normal(size=(count, 40)) * (draw.random((count, 40)) < 0.2)


@pytest.mark.parametrize("make_rows", [make_rare, make_odd, make_constant])
def test_honest_sites_with_strange_images_are_not_doubted(make_rows):
    """Rare and odd ones made former checks cry; half precision must not make this one."""
    for seed in range(20):
        for sites in (3, 8):
            assert not check_told(*tell_of(make_rows, sites, seed))


def test_the_p_value_is_valid_for_the_worst_direction_of_all():
    """Features in step or not, and the direction that moves most from A to B among thousands:
    times the number of features, p is below 0.05 in at most 5 % of honest sites."""
    small, repeats = 0, 200
    for seed in range(repeats):
        draw = derive_server_key(seed).at("worst").numpy()
        rows = draw.normal(size=(40, 6)) + draw.normal(size=(40, 1))
        labels = np.zeros(20, np.int64)
        summary = compute_summary(rows[:20], labels, np.array([20]), 1, 6)
        ways = np.concatenate([np.eye(6), draw.normal(size=(300, 6))])
        lowest = min(
            compute_split_p(summary, 0, make_direction(way), count_bins(rows[20:] @ way))
            for way in ways
        )
        small += 6 * lowest < 0.05
    assert small <= stats.binom.isf(0.001, repeats, 0.05)


def make_direction(weights):
    columns = np.arange(len(weights))
    return Direction("s0", 0, 0, columns, weights, 0.0, 1.0, 1.0, 0.0, False, 1.0)
