"""Masks: words that look random and come off again.

AES-256 in counter mode stretches a seed to a mask. A site adds the mask of its own seed, and for
each neighbor the mask of their common one: of a pair the first by name adds it and the other takes
it away, modulo 2^64. Bonawitz et al. 2017, doi:10.1145/3133956.3133982.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from vitrail.secure_aggregation.fixed_point import Words
from vitrail.secure_aggregation.key_exchange import agree_on_key, derive_key

_ZEROS = bytes(2**20)


def derive_self_seed(seed: bytes, identity: str, site: str) -> bytes:
    """The seed of a site's own mask in one attempt; `identity` is what everybody agreed on."""
    return derive_key(seed, json.dumps(["vitrail self mask", identity, site]))


def derive_pair_seed(private: bytes, public: str, identity: str, pair: Iterable[str]) -> bytes:
    """The seed of the mask of two sites in one attempt."""
    return agree_on_key(private, public, json.dumps(["vitrail pair mask", identity, *sorted(pair)]))


def add_mask(words: Words, seed: bytes) -> None:
    """Add a mask in place, in pieces of a megabyte, so that it is never in memory as a whole."""
    _apply_mask(words, seed, np.add)


def take_mask_away(words: Words, seed: bytes) -> None:
    """Subtract a mask in place."""
    _apply_mask(words, seed, np.subtract)


def apply_pair_mask(words: Words, seed: bytes, site: str, other: str) -> None:
    """What a site does with the mask that it has with another one."""
    _apply_mask(words, seed, np.add if site < other else np.subtract)


def _apply_mask(words: Words, seed: bytes, combine: np.ufunc) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()  # a key for one mask
    step = len(_ZEROS) // words.itemsize
    for at in range(0, len(words), step):
        part = words[at : at + step]
        mask = np.frombuffer(cipher.update(memoryview(_ZEROS)[: part.nbytes]), dtype="<u8")
        combine(part, mask, out=part)
