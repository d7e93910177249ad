"""Masks and cohorts: what leaves looks like noise, and what would tell too much is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.secure_aggregation.rehearsed_link import MemoryStore, add_values, make_link, play

from vitrail.secure_aggregation.cohort import Cohort, Participant, SiteKeys
from vitrail.secure_aggregation.key_exchange import (
    agree_on_key,
    draw_secret,
    get_public_key,
    is_usable,
    open_bytes,
    seal_bytes,
)

pytest.importorskip("cryptography")


def make_cohort(**weights) -> Cohort:
    weights = weights or dict.fromkeys(("east", "north", "west"), 1.0)
    keys = {
        site: SiteKeys(get_public_key(draw_secret()), get_public_key(draw_secret()), "ab" * 32)
        for site in weights
    }
    return Cohort("run", 1, 1, "m", {s: Participant(keys[s], w) for s, w in weights.items()})


def test_a_masked_message_looks_like_noise_and_is_new_each_time() -> None:
    """Refuted by a bit or byte that shows up more often than chance lets it (5 deviations)."""
    link = make_link(3, 2**16)
    link.values = {site: np.zeros(2**16, np.uint64) for site in link.sites}
    play(link)
    first = link.masked["site-0000"]
    bits = np.unpackbits(first.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(len(first)))
    counts = np.bincount(first.view(np.uint8), minlength=256)
    mean = first.nbytes / 256
    assert np.all(np.abs(counts - mean) < 5 * np.sqrt(mean))
    play(link, number=2)
    assert np.mean(link.masked["site-0000"] == first) < 1e-3


def test_what_the_server_has_before_unmasking_tells_nothing_of_any_part() -> None:
    """Neither one masked message, nor the sum of all of them, is near the numbers."""
    link = make_link(4, 2000)
    small = {s: v >> np.uint64(30) for s, v in link.values.items()}
    link.values = small
    play(link)
    for sites in (["site-0000"], list(link.sites)[:3], list(link.sites)):
        seen = sum((link.masked[s] for s in sites), np.zeros(2000, np.uint64))
        away = (seen - add_values(link, sites)).view(np.int64).astype(np.float64)
        assert np.mean(np.abs(away) < 2.0**50) < 1e-2


def test_keys_are_fresh_when_a_site_lost_its_state() -> None:
    """Put back to before the attempt, a site answers the same request with other masks."""
    link = make_link(3, 1000)
    play(link)
    before = dict(link.masked)
    for site, steps in link.sites.items():
        link.sites[site] = type(steps)(site, "run", MemoryStore(), steps.signer)
    link.values["site-0000"] = link.values["site-0000"] + np.uint64(7)
    play(link)
    change = link.masked["site-0000"] - before["site-0000"]
    assert np.mean(change == 7) < 1e-2


def test_terms_that_would_show_a_site_have_a_problem() -> None:
    assert make_cohort().problem() is None
    assert "sum of one" in make_cohort(east=1.0).problem()
    assert "sum of one" in make_cohort(east=1.0, north=0.0, west=0.0).problem()
    assert "weight" in make_cohort(east=1.0, north=float("nan")).problem()
    assert "weight" in make_cohort(east=1.0, north=-1.0).problem()
    assert "add up" in make_cohort(east=1.7e308, north=1.7e308).problem()
    twice = dict(make_cohort().participants)
    twice["north"] = twice["east"]
    assert "one for each" in Cohort("run", 1, 1, "m", twice).problem()


@pytest.mark.parametrize(
    "weights, refused",
    [
        ({"east": 1.0, "north": 1e-12, "west": 1e-12}, True),  # the sum is east's update
        ({"east": 901.0, "north": 99.0, "west": 0.0}, True),
        ({"east": 900.0, "north": 100.0, "west": 0.0}, False),  # two sites, nine to one
        ({"east": 1e-9, "north": 1e-9, "west": 1e-9}, False),
    ],
)
def test_nobody_adds_up_where_one_site_has_nearly_all_the_weight(weights, refused) -> None:
    problem = make_cohort(**weights).problem()
    assert problem is None if not refused else "over the 90 %" in problem


def test_survivors_are_held_to_the_same_weights() -> None:
    """The cohort was balanced; those who are left are not."""
    link = make_link(4)
    names = list(link.sites)
    weights = dict.fromkeys(names, 100.0) | {names[0]: 100.0, names[1]: 1.0, names[2]: 1.0}
    link.gone = {names[3]: "mask"}
    outcome = play(link, weights=weights)
    assert outcome.words is None and "% of the weight" in outcome.problem


def test_sealed_shares_are_for_one_reader() -> None:
    one, two = draw_secret(), draw_secret()
    key = agree_on_key(one, get_public_key(two), "to two")
    assert agree_on_key(two, get_public_key(one), "to two") == key
    sealed = seal_bytes(key, b"share")
    assert open_bytes(key, sealed) == b"share"
    for wrong in (agree_on_key(two, get_public_key(one), "to one"), bytes(32)):
        with pytest.raises(ValueError):
            open_bytes(wrong, sealed)
    with pytest.raises(ValueError):
        open_bytes(key, "00" + sealed[2:])


@pytest.mark.parametrize("public", ["0" * 64, "zz" * 32, "", "ab"])
def test_a_key_that_nobody_can_agree_with_is_known(public) -> None:
    assert not is_usable(public) and is_usable(get_public_key(draw_secret()))
