"""A site that lies in one half is noticed; framing another makes the liar stand out itself."""

import pytest
from experiments.tables.lying_sites import LABEL, LIAR, VICTIM, play

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
    assert all(noticed) and not any(wrong) and not any(victim)


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
