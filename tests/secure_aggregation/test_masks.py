"""Masks: they cancel exactly, look like noise, and fail where they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitrail.rng import derive_site_key
from vitrail.secure_aggregation.cohort import MAX_ATTEMPTS, Cohort, Participant, PublicKey
from vitrail.secure_aggregation.fixed_point import (
    BITS,
    compute_largest_summand,
    from_fixed,
    to_fixed,
)
from vitrail.secure_aggregation.masks import derive_private_key, derive_public_key, mask_words

pytest.importorskip("cryptography")
SITES = ("east", "north", "west")


def private(site, epoch=0, run="run"):
    return derive_private_key(derive_site_key(3, site), run, epoch)


def cohort(sites=SITES, number=1, epoch=0, **weights) -> Cohort:
    return Cohort(
        number,
        {
            s: Participant(
                PublicKey(epoch, derive_public_key(private(s, epoch))), weights.get(s, 1.0)
            )
            for s in sites
        },
    )


def hidden(words, site, terms, message="digest"):
    epoch = terms.participants[site].key.epoch
    return mask_words(words, site, private(site, epoch), terms, terms.id("run", message))


def values(site, size=5000):
    return torch.randn(size, generator=derive_site_key(1, site).torch(), dtype=torch.float64)


@pytest.mark.parametrize("size", [0, 1, 5000, 2**17 + 3])
@pytest.mark.parametrize("sites", [SITES[:2], SITES, [f"site {i}" for i in range(7)]])
def test_the_unmasked_sum_is_the_plain_sum_exactly(sites, size) -> None:
    terms = cohort(sites)
    plain = {s: to_fixed(values(s, size) * 1e3, len(sites)) for s in sites}
    total = sum((hidden(plain[s], s, terms) for s in sites), np.zeros(size, np.uint64))
    wanted = [sum(int(plain[s].view(np.int64)[i]) for s in sites) for i in range(min(size, 200))]
    assert [int(x) for x in total.view(np.int64)[:200]] == wanted
    assert np.array_equal(total, sum(plain.values(), np.zeros(size, np.uint64)))


def test_fixed_point_is_off_by_half_a_step_at_most() -> None:
    x = values("east") * 100
    away = (from_fixed(to_fixed(x, 3)) - x).abs()
    assert float(away.max()) <= 2.0 ** -(BITS + 1)
    assert torch.equal(
        from_fixed(to_fixed(torch.tensor([0.0, -1.0, 0.5]), 2)),
        torch.tensor([0.0, -1.0, 0.5], dtype=torch.float64),
    )


@pytest.mark.parametrize(
    "bad",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        2.0 * compute_largest_summand(3),
        -2.0 * compute_largest_summand(3),
    ],
)
def test_what_could_overflow_is_refused_before_it_is_masked(bad) -> None:
    with pytest.raises(ValueError):
        to_fixed(torch.tensor([0.0, bad], dtype=torch.float64), 3)


def test_the_largest_numbers_of_all_sites_add_up() -> None:
    for sign in (1, -1):
        words = [
            to_fixed(torch.tensor([sign * compute_largest_summand(3)], dtype=torch.float64), 3)
            for _ in SITES
        ]
        assert float(from_fixed(sum(words))) == sign * 3 * compute_largest_summand(3)


def test_a_masked_message_looks_like_noise_and_is_new_each_time() -> None:
    """Refuted by a bit or byte that shows up more often than chance lets it (5 deviations)."""
    zeros = np.zeros(2**16, np.uint64)
    first = hidden(zeros, "east", cohort())
    bits = np.unpackbits(first.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(len(first)))
    counts = np.bincount(first.view(np.uint8), minlength=256)
    mean = first.nbytes / 256
    assert np.all(np.abs(counts - mean) < 5 * np.sqrt(mean))
    data = to_fixed(values("east", len(zeros)), 3)
    signed = hidden(data, "east", cohort()).view(np.int64).astype(np.float64)
    assert abs(np.corrcoef(signed, data.view(np.int64))[0, 1]) < 5 / np.sqrt(len(zeros))
    others = [
        hidden(zeros, "east", cohort(number=2)),
        hidden(zeros, "east", cohort(), message="another"),
        hidden(zeros, "east", cohort(epoch=1)),
        hidden(zeros, "east", cohort(SITES[:2])),
        hidden(zeros, "east", cohort(west=2.0)),
    ]
    for other in others:
        assert np.mean(other == first) < 1e-3


@pytest.mark.parametrize("changed", ["key", "replayed key", "attempt", "message", "weight"])
def test_sites_that_were_told_different_things_do_not_cancel(changed) -> None:
    terms = {s: cohort() for s in SITES}
    message = dict.fromkeys(SITES, "digest")
    if changed == "key":
        wrong = Participant(PublicKey(0, derive_public_key(private("stranger"))), 1.0)
        terms["west"] = Cohort(1, {**cohort().participants, "north": wrong})
    elif changed == "replayed key":
        old = Participant(PublicKey(0, derive_public_key(private("north", 0, "another run"))), 1.0)
        terms = dict.fromkeys(SITES, Cohort(1, {**cohort().participants, "north": old}))
    elif changed == "attempt":
        terms["west"] = cohort(number=2)
    elif changed == "weight":
        terms["west"] = cohort(north=0.0)
    else:
        message["west"] = "another"
    zeros = np.zeros(100, np.uint64)
    total = sum(hidden(zeros, s, terms[s], message[s]) for s in SITES)
    assert not np.any(total == 0)


def test_two_of_three_masked_messages_tell_nothing() -> None:
    words = {s: to_fixed(values(s), 3) for s in SITES}
    part = hidden(words["east"], "east", cohort()) + hidden(words["north"], "north", cohort())
    real = (words["east"] + words["north"]).view(np.int64)
    near = np.abs((part.view(np.int64) - real).astype(np.float64)) < 2.0**40
    assert near.mean() < 1e-3


def test_a_key_that_nobody_can_agree_with_is_refused() -> None:
    terms = Cohort(1, {**cohort().participants, "north": Participant(PublicKey(0, "0" * 64), 1.0)})
    with pytest.raises(ValueError):
        hidden(np.zeros(3, np.uint64), "east", terms)


def test_terms_that_would_show_a_site_have_a_problem() -> None:
    assert cohort().problem(1) is None
    assert "sum of one" in cohort(("east",)).problem(1)
    assert "sum of one" in cohort(north=0.0, west=0.0).problem(1)
    assert "weight" in cohort(north=float("nan")).problem(1)
    assert "weight" in cohort(north=-1.0).problem(1)
    assert "before this round" in cohort(epoch=1).problem(1)
    assert "add up" in cohort(north=1.7e308, east=1.7e308).problem(1)
    twice = Cohort(1, {**cohort().participants, "north": cohort().participants["east"]})
    assert "one for each" in twice.problem(1)
    assert MAX_ATTEMPTS >= 2


@pytest.mark.parametrize(
    "weights, refused",
    [
        ({"east": 1.0, "north": 1e-12, "west": 1e-12}, True),  # the sum is east's update
        ({"east": 1.0, "north": 1e-12, "west": 0.0}, True),
        ({"east": 901.0, "north": 99.0, "west": 0.0}, True),
        ({"east": 900.0, "north": 100.0, "west": 0.0}, False),  # two sites, nine to one
        ({"east": 900.0, "north": 50.0, "west": 50.0}, False),
        ({"east": 1e-9, "north": 1e-9, "west": 1e-9}, False),
    ],
)
def test_nobody_adds_up_where_one_site_has_nearly_all_the_weight(weights, refused) -> None:
    found = cohort(**weights).problem(1)
    assert found is None if not refused else "over the 90 %" in found


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        {"epoch": 1, "public": "ab", "signature": ""},
        {"epoch": "1", "public": "a" * 64, "signature": ""},
        {"epoch": True, "public": "a" * 64, "signature": ""},
        {"epoch": 1, "public": "g" * 64, "signature": ""},
        {"epoch": 1, "public": ["a"] * 64, "signature": ""},
        {"epoch": 1, "public": "a" * 64, "signature": 3},
        {"epoch": 1, "public": "a" * 64, "signature": "", "more": 1},
    ],
)
def test_what_is_no_key_is_refused(raw) -> None:
    with pytest.raises(ValueError):
        PublicKey.read(raw)
