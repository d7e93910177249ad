"""Shares: enough of them are the secret, fewer are nothing."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.secure_aggregation.shamir import (
    PRIME,
    combine_shares,
    read_share,
    split_secret,
    write_share,
)

SECRET = bytes(range(32))


def lagrange_at(shares, place):
    """The definition: the polynomial through all points, in fractions, modulo the prime."""
    total = 0
    for x, y in shares.items():
        factor = Fraction(1)
        for other in shares:
            if other != x:
                factor *= Fraction(place - other, x - other)
        total += y * factor.numerator * pow(factor.denominator, -1, PRIME)
    return total % PRIME


def test_the_prime_is_one() -> None:
    """Fermat's test to 40 bases; and it is the first above 2^256."""
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in range(2, 42))
    assert not any(pow(3, n - 1, n) == 1 for n in range(2**256 + 1, PRIME, 2))


def test_any_subset_of_enough_shares_is_the_secret() -> None:
    shares = split_secret(SECRET, range(1, 7), 4)
    for size in (4, 5, 6):
        for places in combinations(shares, size):
            assert combine_shares({p: shares[p] for p in places}, 4) == SECRET


@settings(deadline=None, max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 9), st.data())
def test_shares_lie_on_one_polynomial_through_the_secret(secret, count, data) -> None:
    threshold = data.draw(st.integers(1, count))
    shares = split_secret(secret, range(1, count + 1), threshold)
    first = {p: shares[p] for p in list(shares)[:threshold]}
    assert lagrange_at(first, 0) == int.from_bytes(secret, "big")
    assert all(lagrange_at(first, p) == share for p, share in shares.items())


def test_too_few_shares_fit_every_secret() -> None:
    """With one share less than needed there is a polynomial through any secret: nothing is told."""
    shares = split_secret(SECRET, range(1, 6), 3)
    known = {p: shares[p] for p in (1, 4)}
    for other in (bytes(32), bytes([255] * 32)):
        point = {0: int.from_bytes(other, "big"), **known}
        assert combine_shares({**known, 5: lagrange_at(point, 5)}, 3) == other
    with pytest.raises(ValueError, match="2 shares of the 3"):
        combine_shares(known, 3)


def test_two_splittings_of_one_secret_have_nothing_in_common() -> None:
    one, two = (split_secret(SECRET, range(1, 4), 2) for _ in range(2))
    assert not set(one.values()) & set(two.values())
    assert combine_shares({1: one[1], 2: two[2]}, 2) != SECRET if _combines(one, two) else True


def _combines(one, two) -> bool:
    try:
        combine_shares({1: one[1], 2: two[2]}, 2)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "secret, places, threshold",
    [(b"short", [1, 2], 2), (SECRET, [0, 1], 2), (SECRET, [1, 1], 2), (SECRET, [1, 2], 3),
     (SECRET, [1, 2], 0), (SECRET, [], 1)],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused(secret, places, threshold) -> None:
    with pytest.raises(ValueError):
        split_secret(secret, places, threshold)


@pytest.mark.parametrize("text", ["", "00", "zz" * 33, "ff" * 33, "00" * 34])
def test_what_is_no_share_is_refused(text) -> None:
    with pytest.raises(ValueError):
        read_share(text)


def test_a_share_travels_as_it_is() -> None:
    assert read_share(write_share(PRIME - 1)) == PRIME - 1 and read_share(write_share(0)) == 0
