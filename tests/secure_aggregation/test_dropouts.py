"""Dropouts at every step: the exact sum of the survivors while enough stay, else no sum at all."""

from __future__ import annotations

import numpy as np
import pytest
from tests.secure_aggregation.rehearsed_link import STEPS, add_values, make_link, play

from vitrail.secure_aggregation.graph import compute_threshold
from vitrail.secure_aggregation.steps import StepAnswer

pytest.importorskip("cryptography")


def check(link, outcome, expected=None):
    """The sum is the plain sum over the survivors, and nothing but that."""
    assert not outcome.problem and outcome.words is not None
    assert np.array_equal(outcome.words, add_values(link, outcome.survivors))
    if expected is not None:
        assert set(outcome.survivors) == set(expected)


@pytest.mark.parametrize("count", [2, 3, 4, 10, 31])
@pytest.mark.parametrize("size", [0, 1, 2**17 + 3])
def test_the_sum_is_exact_when_everybody_stays(count, size) -> None:
    link = make_link(count, size)
    check(link, play(link), link.sites)
    assert link.asked == list(STEPS)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [4, 10])
def test_as_many_as_may_go_are_recovered_within_the_round(count, step) -> None:
    """Who goes before its masked update is sent is not in the sum; who goes after it, is."""
    link = make_link(count)
    gone = list(link.sites)[: count - compute_threshold(count)]
    link.gone = dict.fromkeys(gone, step)
    outcome = play(link)
    inside = STEPS.index(step) > STEPS.index("mask")
    check(link, outcome, [s for s in link.sites if inside or s not in gone])
    assert link.asked == list(STEPS)  # one attempt


@pytest.mark.parametrize("step", ["shares", "mask"])
def test_one_more_costs_an_attempt_while_nothing_was_confirmed(step) -> None:
    """Of nine sites seven must stay; six are enough for one sum a round, and try again."""
    link = make_link(9)
    gone = list(link.sites)[:3]
    link.gone = dict.fromkeys(gone, step)
    outcome = play(link)
    assert link.asked.count("keys") == 2
    check(link, outcome, [s for s in link.sites if s not in gone])
    assert outcome.cohort.attempt == 2


@pytest.mark.parametrize("step", ["keys", "shares", "mask", "survivors"])
def test_too_few_for_one_sum_a_round_are_refused_at_once(step) -> None:
    """Six of ten could be the rest of a round whose sum was taken: no other attempt is begun."""
    link = make_link(10)
    link.gone = dict.fromkeys(list(link.sites)[:4], step)
    outcome = play(link)
    assert outcome.words is None and "6 sites" in outcome.problem
    assert link.asked.count("keys") == 1


def test_too_few_to_unmask_is_the_end_of_the_round() -> None:
    """Another attempt would give a second sum of one round."""
    link = make_link(10)
    link.gone = dict.fromkeys(list(link.sites)[:4], "unmask")
    outcome = play(link)
    assert outcome.words is None and "6 sites helped to unmask" in outcome.problem
    assert link.asked == list(STEPS)
    link.gone = {}
    again = play(link)  # the server asks anew, for the same round
    assert again.words is None or set(again.survivors) == set(link.sites)


@pytest.mark.slow
def test_a_thousand_random_schedules() -> None:
    """Each site goes before a random step, or never; whatever happens, the outcome is the exact
    sum of those it names, or none. Where enough stay to the end, there is one, in one attempt."""
    draw = np.random.Generator(np.random.PCG64(23))
    sums = refusals = 0
    for _ in range(1000):
        count = int(draw.integers(2, 9))
        link = make_link(count, 3, signed=bool(draw.integers(2)))
        chance = draw.random()
        for site in link.sites:
            if draw.random() < chance:
                link.gone[site] = STEPS[int(draw.integers(5))]
        outcome = play(link)
        stayed = [s for s in link.sites if s not in link.gone]
        if len(stayed) >= compute_threshold(count):
            assert link.asked == list(STEPS)
            there = [s for s in link.sites if link.is_there(s, "mask")]
            check(link, outcome, there)
        if outcome.words is None:
            refusals += 1
            assert outcome.problem and not outcome.survivors
        else:
            sums += 1
            check(link, outcome)
            assert all(link.is_there(s, "mask") for s in outcome.survivors)
    assert sums > 200 and refusals > 200


@pytest.mark.slow
def test_a_hundred_sites_that_lose_two_percent_each_round() -> None:
    """Everybody stays with a chance of 0.13; the rounds succeed all the same."""
    draw = np.random.Generator(np.random.PCG64(5))
    link = make_link(100, signed=False)
    losses = 0
    for number in range(1, 4):
        lost = draw.random(100) < 0.02
        steps = draw.integers(0, 5, 100)
        names = list(link.sites)
        link.gone = {n: STEPS[s] for n, s, gone in zip(names, steps, lost, strict=True) if gone}
        losses += len(link.gone)
        check(link, play(link, number), [n for n in names if link.is_there(n, "mask")])
    assert losses > 0


def test_a_sparse_cohort_survives_a_third_lost() -> None:
    """90 sites have 68 neighbors each; as many stay as must."""
    link = make_link(90, signed=False)
    link.gone = dict.fromkeys(list(link.sites)[:29], "mask")
    check(link, play(link), list(link.sites)[29:])


def test_a_site_that_lies_with_its_shares_is_left_out_of_the_recovery() -> None:
    link = make_link(7)
    liar = link.sites["site-0000"]
    answer = liar.answer

    def lie(request):
        told = answer(request)
        if request.step != "unmask":
            return told
        wrong = {name: f"{int(text, 16) ^ 1:066x}" for name, text in told.shares.items()}
        return StepAnswer(shares=wrong)

    object.__setattr__(liar, "answer", lie)
    link.gone = {"site-0006": "mask"}
    check(link, play(link), list(link.sites)[:6])
