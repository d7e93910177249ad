"""Keys of one attempt: fresh private ones, what two sites agree on, and messages under that.

X25519 for the agreement, HKDF-SHA256 to bind it to a purpose, AES-256-GCM for what only one site
may read. Private keys come from the operating system, not from the site's secret: keys that follow
from something that lasts would come again when a site's folder is put back, and masks with them.
"""

from __future__ import annotations

import hashlib
import secrets

from vitrail.errors import ConfigError

KEY_BYTES = 32
_NONCE = bytes(12)  # each key seals one message
_TAG_BYTES = 16


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


def draw_secret() -> bytes:
    """32 bytes that nobody has seen before: a private key, or the seed of a mask."""
    return secrets.token_bytes(KEY_BYTES)


def get_public_key(private: bytes) -> str:
    """The public half of a private key, in hexadecimal."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def is_usable(public: str) -> bool:
    """Whether a public key can be agreed with: one of low order, or none at all, cannot."""
    try:
        agree_on_key(draw_secret(), public, "")
    except ValueError:
        return False
    return True


def commit_to(seed: bytes) -> str:
    """A digest by which a seed is known again; of 32 random bytes it tells nothing."""
    return hashlib.blake2b(seed, digest_size=32, person=b"vitrail seed").hexdigest()


def agree_on_key(private: bytes, public: str, purpose: str) -> bytes:
    """What the owners of two keys both know, for one purpose; ValueError if a key is no good."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    ours = X25519PrivateKey.from_private_bytes(private)
    shared = ours.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    return derive_key(shared, purpose)


def derive_key(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(secret)


def seal_bytes(key: bytes, plain: bytes) -> str:
    """A message that only who has the key can read, in hexadecimal. One message a key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(_NONCE, plain, None).hex()


def is_sealed(text: str, size: int) -> bool:
    """Whether a text may be a sealed message of so many bytes; who has no key sees no more."""
    if len(text) != 2 * (size + _TAG_BYTES):
        return False
    return all(digit in "0123456789abcdef" for digit in text)


def open_bytes(key: bytes, sealed: str) -> bytes:
    """A sealed message; ValueError if it was changed or is for somebody else."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(_NONCE, bytes.fromhex(sealed), None)
    except InvalidTag as err:
        raise ValueError("it was changed on its way, or is for somebody else") from err
