"""Pairwise masks that cancel in the sum over sites.

Two sites agree on a secret (X25519); HKDF binds it to the run, the message, the attempt and the
pair; AES-256 in counter mode stretches it to a mask. Of each pair the first by name adds the mask
and the other takes it away, modulo 2^64. Bonawitz et al. 2017, doi:10.1145/3133956.3133982,
without their shares for those who drop out: here the others repeat the attempt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vitrail.errors import ConfigError
from vitrail.rng import Key
from vitrail.secure_aggregation.cohort import Cohort
from vitrail.secure_aggregation.fixed_point import Words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_ZEROS = bytes(2**20)


def check_installed() -> None:
    """Refuse secure sums where the ciphers are missing."""
    try:
        import cryptography  # noqa: F401  (comes with an extra)
    except ImportError as err:
        raise ConfigError(
            "secure sums need the package cryptography",
            where="release.secure_sum",
            hint='pip install cryptography, or the extra: pip install "vitrail[flower]".',
        ) from err


def derive_private_key(secret: Key, run: str, epoch: int) -> Key:
    """The root of a site's private key; it follows from the site's secret and is never stored."""
    return secret.at("secure sum", run, epoch)


def derive_public_key(private: Key) -> str:
    """The public key that belongs to a private one, in hexadecimal."""
    return _make_exchange_key(private).public_key().public_bytes_raw().hex()


def mask_words(words: Words, site: str, private: Key, cohort: Cohort, identity: str) -> Words:
    """A site's numbers under its masks with every other site of the cohort.

    `identity` is `Cohort.id`. ValueError if a public key is not usable.
    """
    masked = words.copy()
    for other, participant in sorted(cohort.participants.items()):
        if other == site:
            continue
        shared = _derive_shared_secret(private, participant.key.public)
        turn = np.add if site < other else np.subtract
        at = 0
        for piece in _generate_mask(
            shared, json.dumps([identity, *sorted((site, other))]), masked.nbytes
        ):
            part = masked[at : at + len(piece)]
            turn(part, piece, out=part)
            at += len(piece)
    return masked


def _make_exchange_key(private: Key) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private.secret())


def _derive_shared_secret(private: Key, public: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return _make_exchange_key(private).exchange(
        X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    )


def _generate_mask(shared: bytes, purpose: str, size: int) -> Iterator[Words]:
    """The mask of a pair in pieces of a megabyte, so that it is never in memory as a whole."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(shared)
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()  # a key for one mask
    for at in range(0, size, len(_ZEROS)):
        piece = cipher.update(_ZEROS[: min(len(_ZEROS), size - at)])
        yield np.frombuffer(piece, dtype="<u8")
