"""Shamir's secret sharing: any `threshold` shares give the secret back, fewer tell nothing.

A secret of 32 bytes is the value at 0 of a random polynomial of degree threshold - 1 over the
integers modulo the first prime above 2^256; a holder's share is the value at its own place, from 1
up. Shamir 1979, doi:10.1145/359168.359176.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split_secret(secret: bytes, places: Iterable[int], threshold: int) -> dict[int, int]:
    """A share of the secret for each place."""
    holders = list(places)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")
    if len(set(holders)) < len(holders) or not all(0 < place < PRIME for place in holders):
        raise ValueError("places are different whole numbers from 1 up")
    if not 1 <= threshold <= len(holders):
        raise ValueError(f"{threshold} of {len(holders)} shares cannot be asked for")
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    polynomial.append(int.from_bytes(secret, "big"))  # the constant term, highest power first
    return {place: _evaluate(polynomial, place) for place in holders}


def combine_shares(shares: Mapping[int, int], threshold: int) -> bytes:
    """The secret from at least `threshold` shares; ValueError if they are of no secret."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares of the {threshold} that are needed")
    places = tuple(sorted(shares)[:threshold])
    factors = _compute_factors(places)
    value = sum(shares[x] * factor for x, factor in zip(places, factors, strict=True)) % PRIME
    if value >> (8 * SECRET_BYTES):
        raise ValueError("the shares are not of one secret")
    return value.to_bytes(SECRET_BYTES, "big")


def evaluate_at(shares: Mapping[int, int], place: int) -> int:
    """What a holder's share must be, from as many others as give the secret back."""
    moved = tuple(sorted(other - place for other in shares))
    factors = _compute_factors(moved)
    terms = (shares[x + place] * factor for x, factor in zip(moved, factors, strict=True))
    return sum(terms) % PRIME


def write_share(share: int) -> str:
    """A share in hexadecimal."""
    return share.to_bytes(SHARE_BYTES, "big").hex()


def read_share(text: str) -> int:
    """A share from hexadecimal; ValueError if it is none."""
    raw = bytes.fromhex(text)
    share = int.from_bytes(raw, "big")
    if len(raw) != SHARE_BYTES or share >= PRIME:
        raise ValueError("this is no share")
    return share


def _evaluate(polynomial: list[int], place: int) -> int:
    value = 0
    for coefficient in polynomial:
        value = (value * place + coefficient) % PRIME
    return value


@lru_cache(maxsize=2048)
def _compute_factors(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's factors at 0: the product over the other places x of x / (x - own)."""
    factors = []
    for place in places:
        above = below = 1
        for other in places:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        factors.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(factors)
