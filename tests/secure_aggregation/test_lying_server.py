"""A server that lies about anything gets nothing: sites withhold, or what it has is noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.secure_aggregation.rehearsed_link import (
    MemoryStore,
    TestSigner,
    add_values,
    make_link,
    play,
)

from vitrail.release.masker import WithheldError
from vitrail.secure_aggregation.cohort import Participant
from vitrail.secure_aggregation.key_exchange import draw_secret, get_public_key
from vitrail.secure_aggregation.server_steps import LostAttemptError, SecureRound
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import (
    KeyRequest,
    MaskRequest,
    ShareRequest,
    SurvivorRequest,
    UnmaskRequest,
)
from vitrail.secure_aggregation.unmasking import Recovery, UnmaskingError, gather_shares

pytest.importorskip("cryptography")


class Lies:
    """A link that lets a test change what each site is told, and says what it answered."""

    def __init__(self, link, change):
        self.link, self.change, self.withheld = link, change, {}

    def exchange(self, requests):
        answers = self.link.exchange([self.change(r) for r in requests])
        for site, answer in answers.items():
            if answer.withheld:
                self.withheld[site] = answer.withheld
        return answers

    def collect(self, requests, is_signed):
        changed = {}
        for site, request in requests.items():
            changed[site] = self.change(request, site)
        return self.link.collect(changed, is_signed)


def lie(link, change, number=1):
    """A round whose requests are changed; what the server gets, and why sites withheld."""
    lies = Lies(link, lambda request, site=None: change(request, site or request.site))
    weights = dict.fromkeys(link.sites, 1.0)
    outcome = SecureRound("run", number, "digest", weights, lies).add_up(list(link.sites))
    return outcome, lies.withheld


def test_two_stories_about_who_survived_are_told_to_nobody() -> None:
    """Half the sites hear that the victim is lost, half that it is in: signatures do not reach
    the threshold for either, so nobody gives a share of anything."""
    link = make_link(9)
    names = list(link.sites)

    def change(request, site):
        if isinstance(request, SurvivorRequest | UnmaskRequest) and site in names[:4]:
            return replace(request, survivors=tuple(n for n in request.survivors if n != names[8]))
        return request

    outcome, withheld = lie(link, change)
    assert outcome.words is None
    assert any("signed who is in the sum" in why for why in withheld.values())
    assert not any(link.sites[n].store.load().unmasked for n in names)


def test_a_site_gives_of_nobody_both_shares() -> None:
    """Asked again for the other kind with a second story, it withholds."""
    link = make_link(5)
    assert play(link).words is not None
    steps = link.sites["site-0000"]
    state = steps.store.load()
    fewer = tuple(state.survivors[:4])
    signed = dict.fromkeys(fewer, "")
    told = steps.answer(SurvivorRequest("site-0000", 1, state.cohort, fewer, signed))
    assert "other survivors were confirmed" in told.withheld and not told.signature
    told = steps.answer(UnmaskRequest("site-0000", 1, state.cohort, fewer, signed))
    assert "other survivors were confirmed" in told.withheld and not told.shares


def test_too_few_or_forged_signatures_unmask_nothing() -> None:
    def forge(request, site):
        if isinstance(request, UnmaskRequest):
            return replace(request, signatures=dict.fromkeys(request.signatures, "00" * 32))
        return request

    link = make_link(6)
    outcome, withheld = lie(link, forge)
    assert outcome.words is None and "0 sites signed" in withheld["site-0000"]

    def few(request, site):
        if isinstance(request, UnmaskRequest):
            return replace(request, signatures=dict(list(request.signatures.items())[:4]))
        return request

    link = make_link(6)
    outcome, withheld = lie(link, few)
    assert outcome.words is None and "4 sites signed" in withheld["site-0000"]


def test_a_victim_told_of_other_senders_is_found_out_before_anything_is_unmasked() -> None:
    """Masks with fewer sites might leave the victim bare, so everybody's word on whom it has
    masks with goes round first."""
    link = make_link(7)

    def change(request, site):
        if isinstance(request, MaskRequest) and site == "site-0003":
            senders = request.senders[:-1] if request.senders[-1] != site else request.senders[1:]
            shares = {n: s for n, s in request.shares.items() if n in senders}
            return replace(request, senders=senders, shares=shares)
        return request

    outcome, withheld = lie(link, change)
    assert outcome.words is None
    assert any("'site-0003' has not signed" in why for why in withheld.values())
    assert not any(s.store.load().unmasked for s in link.sites.values())


def swap_key(request, site, victims, keys):
    """The cohort with somebody else's keys in one place."""
    if isinstance(request, ShareRequest) and site in victims:
        told = dict(request.cohort.participants)
        told["site-0002"] = Participant(keys, told["site-0002"].weight)
        return replace(request, cohort=replace(request.cohort, participants=told))
    return request


def test_a_key_of_the_server_in_a_sites_place_is_refused() -> None:
    link = make_link(5)

    def change(request, site):
        if isinstance(request, ShareRequest):
            old = request.cohort.participants["site-0002"].keys
            keys = replace(old, masking=get_public_key(draw_secret()))
            return swap_key(request, site, {"site-0000"}, keys)
        return request

    outcome, withheld = lie(link, change)
    assert "'site-0002' is not signed by it" in withheld["site-0000"]
    if outcome.words is not None:  # the others may go on without the one that saw the lie
        assert "site-0000" not in outcome.survivors
        assert np.array_equal(outcome.words, add_values(link, outcome.survivors))


@pytest.mark.parametrize("changed", ["weight", "message", "attempt", "run"])
def test_sites_that_were_told_different_things_add_up_to_noise_or_nothing(changed) -> None:
    link = make_link(4, 200)

    def change(request, site):
        if isinstance(request, ShareRequest) and site == "site-0001":
            cohort = request.cohort
            if changed == "weight":
                told = dict(cohort.participants)
                told["site-0000"] = replace(told["site-0000"], weight=2.0)
                return replace(request, cohort=replace(cohort, participants=told))
            value = {"message": "another", "attempt": 2, "run": "other"}[changed]
            return replace(request, cohort=replace(cohort, **{changed: value}))
        return request

    outcome, _ = lie(link, change)
    if outcome.words is not None:
        assert "site-0001" not in outcome.survivors
        assert np.array_equal(outcome.words, add_values(link, outcome.survivors))
    else:
        assert outcome.problem


def test_a_second_sum_of_a_round_is_refused_by_those_who_gave_the_first() -> None:
    """Two sums that differ by one site are that site's update."""
    link = make_link(6)
    first = play(link)
    assert first.words is not None
    again = SecureRound("run", 1, "digest", dict.fromkeys(link.sites, 1.0), link)
    with pytest.raises(LostAttemptError, match="0 sites announced keys"):
        again._play(2, list(link.sites)[:5])
    repeat = play(link)  # the same attempt again: the same bytes
    assert np.array_equal(repeat.words, first.words)


def test_a_repeated_attempt_has_the_stored_bytes_and_no_other_update() -> None:
    link = make_link(4, 50)
    play(link)
    before = {s: w.copy() for s, w in link.masked.items()}
    play(link)
    assert all(np.array_equal(link.masked[s], before[s]) for s in before)
    link.values["site-0001"] = link.values["site-0001"] + np.uint64(1)
    link.masked.clear()
    play(link)
    assert "site-0001" not in link.masked


def test_an_old_round_is_over() -> None:
    link = make_link(4)
    play(link, 1)
    play(link, 2)
    told = link.sites["site-0000"].answer(KeyRequest("site-0000", 1, 2, "digest"))
    assert told.withheld and told.keys is None


def test_colluders_below_the_threshold_cannot_take_a_mask_off() -> None:
    """The server and 3 of 10 sites have their shares of all secrets, and that is too few."""
    link = make_link(10)
    outcome = play(link)
    names = list(link.sites)
    answers = {}
    for name in names[:3]:
        state = link.sites[name].store.load()
        answers[name] = link.sites[name].unmask(
            UnmaskRequest(
                name,
                1,
                state.cohort,
                tuple(state.survivors),
                {n: TestSigner(n).sign(_state(state)) for n in names},
            )
        )
    shares = gather_shares(outcome.cohort, answers)
    total = sum(link.masked.values(), np.zeros(5, np.uint64))
    with pytest.raises(UnmaskingError, match="3 shares"):
        Recovery(outcome.cohort, shares).remove_masks(total, names, names)


def _state(state):
    from vitrail.secure_aggregation.cohort import state_survivors

    return state_survivors(state.cohort, state.senders, state.survivors)


def test_a_site_wants_as_many_in_a_sum_as_its_policy_says() -> None:
    link = make_link(5)
    for name in link.sites:
        link.sites[name] = SiteSteps(name, "run", MemoryStore(), TestSigner(name), least=5)
    assert play(link).words is not None
    link.gone = {"site-0004": "mask"}
    outcome = play(link, 2)
    assert outcome.words is None


def test_rubbish_in_a_mask_request_is_withheld() -> None:
    link = make_link(4)
    play(link)
    steps = link.sites["site-0000"]
    state = steps.store.load()
    good = MaskRequest(1, state.cohort, tuple(state.senders), state.received)
    words = link.values["site-0000"]
    assert np.array_equal(steps.mask(good, 1, "digest", words), link.masked["site-0000"])
    for bad in (
        replace(good, cohort="ab" * 32),
        replace(good, senders=good.senders[:3]),
        replace(good, senders=(*good.senders, "nobody")),
        replace(good, shares={}),
        replace(good, shares={**good.shares, "site-0001": "00"}),
    ):
        with pytest.raises(WithheldError):
            steps.mask(bad, 1, "digest", words)
    with pytest.raises(WithheldError):
        steps.mask(good, 2, "digest", words)
    with pytest.raises(WithheldError):
        steps.mask(good, 1, "another", words)
