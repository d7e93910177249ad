"""A site that lies in a step costs itself its place, and nobody else a round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.secure_aggregation.rehearsed_link import add_values, make_link, play

from vitrail.engine.run import resume
from vitrail.secure_aggregation import site_steps
from vitrail.secure_aggregation.shamir import PRIME, combine_shares, evaluate_at, split_secret
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import StepAnswer

pytest.importorskip("cryptography")
LIAR = "site-0003"


def lie_in(link, step, change, sites=(LIAR,)):
    """Sites that answer one step otherwise than they should."""
    for name in sites:
        steps = link.sites[name]
        told = steps.answer

        def answer(request, told=told):
            said = told(request)
            return change(said) if request.step == step and not said.withheld else said

        object.__setattr__(steps, "answer", answer)


def check(link, outcome, expected):
    assert outcome.words is not None, outcome.problem
    assert set(outcome.survivors) == set(expected)
    assert np.array_equal(outcome.words, add_values(link, outcome.survivors))


def others(link):
    return [name for name in link.sites if name != LIAR]


LIES = {
    "keys": lambda said: replace(said, keys=replace(said.keys, signature="00")),
    "keys of no use": lambda said: replace(said, keys=replace(said.keys, masking="0" * 64)),
    "shares": lambda said: replace(said, shares=dict.fromkeys(said.shares, "00")),
    "shares of some": lambda said: replace(said, shares=dict(list(said.shares.items())[1:])),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("count", [5, 10])
def test_a_lie_before_the_turn_is_named_and_the_round_goes_on(lie, count) -> None:
    link = make_link(count)
    lie_in(link, lie.split()[0], LIES[lie])
    outcome = play(link)
    check(link, outcome, others(link))
    assert set(outcome.blamed) == {LIAR} and not outcome.liars
    assert link.asked.count("keys") == 1


def test_a_false_signature_under_a_masked_update_is_named_and_the_round_goes_on(
    monkeypatch,
) -> None:
    link, true = make_link(5), SiteSteps.sign_senders
    monkeypatch.setattr(
        SiteSteps,
        "sign_senders",
        lambda self, request: "00" if self.site == LIAR else true(self, request),
    )
    outcome = play(link)
    check(link, outcome, others(link))
    assert "not signed" in outcome.blamed[LIAR]


def test_a_false_signature_under_the_survivors_is_named_and_the_round_goes_on() -> None:
    link = make_link(5)
    lie_in(link, "survivors", lambda said: replace(said, signature="00"))
    outcome = play(link)
    check(link, outcome, link.sites)  # its update was good
    assert "not signed" in outcome.blamed[LIAR]


def falsify(said):
    return StepAnswer(shares={n: f"{int(s, 16) ^ 1:066x}" for n, s in said.shares.items()})


@pytest.mark.parametrize("liars", [1, 2, 3])
def test_as_many_as_may_collude_give_false_shares_and_the_sum_comes_out(liars) -> None:
    """Ten sites, of which seven shares are enough. Who lies about more sites than may collude is
    known by it: they cannot have been given false shares by so many."""
    link = make_link(10)
    names = list(link.sites)[:liars]
    lie_in(link, "unmask", falsify, names)
    outcome = play(link)
    check(link, outcome, link.sites)
    assert outcome.liars == set(names) == set(outcome.blamed)


def test_one_false_share_names_nobody() -> None:
    """Its holder may have lied, or the one who sent it: no honest site is to be framed."""
    link = make_link(10)

    def change(said):
        name = next(n for n in said.shares if n != LIAR)
        return StepAnswer(shares={**said.shares, name: "00" * 33})

    lie_in(link, "unmask", change)
    outcome = play(link)
    check(link, outcome, link.sites)
    assert not outcome.blamed


def share_nothing(monkeypatch, liar):
    """A site whose shares are of no secret; sealed for each neighbor, nobody can see it before
    they are needed."""
    true = SiteSteps.share

    def share(self, cohort):
        if self.site != liar:
            return true(self, cohort)
        with monkeypatch.context() as patch:
            patch.setattr(
                site_steps,
                "split_secret",
                lambda secret, places, needed: {p: (p * p + 5) * 10**70 % PRIME for p in places},
            )
            return true(self, cohort)

    monkeypatch.setattr(SiteSteps, "share", share)


def test_shares_of_no_secret_void_a_round_and_their_sender_is_named(monkeypatch) -> None:
    link = make_link(10)
    share_nothing(monkeypatch, LIAR)
    outcome = play(link)
    assert outcome.words is None and LIAR in outcome.problem
    assert outcome.liars == {LIAR}


def test_a_run_leaves_a_site_out_that_spoiled_a_sum(tiny, tmp_path, monkeypatch) -> None:
    """It voided every round. Now one, and after a restart it is still left out."""
    share_nothing(monkeypatch, "site-02")
    more = {"model": {"backbone": "small-cnn", "width": 4}, "partition": {"sites": 7}}
    stopped = []

    def stop(progress):
        if progress.round == 2 and not stopped:
            stopped.append(progress)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny(release={"secure_sum": True}, run={"rounds": 3}, on_round=stop, **more)
    folder = tmp_path / "run"
    resume(folder)
    log = (folder / "log.txt").read_text()
    assert "round 1: void" in log and "round 2: void" not in log and "round 3: void" not in log
    assert "round 3: without site-02: left out since round 1" in log


@pytest.mark.parametrize("needed, count", [(1, 1), (2, 5), (7, 10)])
def test_a_share_follows_from_as_many_others_as_give_the_secret(needed, count) -> None:
    shares = split_secret(bytes(range(32)), range(1, count + 1), needed)
    chosen = dict(list(shares.items())[-needed:])
    assert all(evaluate_at(chosen, place) == share for place, share in shares.items())
    assert evaluate_at(chosen, 0).to_bytes(32, "big") == combine_shares(chosen, needed)
