"""The key pair of a site's node: made at the site, or by the coordinator for it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vitrail.errors import ConfigError, RunError
from vitrail.files import create

NODE_KEY, NODE_PUBLIC = "node.key", "node.pub"
_SSH = serialization.Encoding.OpenSSH


def make_pair() -> tuple[bytes, bytes]:
    """A new EC P-384 key as Flower reads it: the private half, the public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return secret, key.public_key().public_bytes(_SSH, serialization.PublicFormat.OpenSSH)


def make_node_key(folder: Path) -> Path:
    """Make a site's key pair in its own folder; returns the public half, which alone is sent."""
    if (folder / NODE_KEY).exists() or (folder / NODE_PUBLIC).exists():
        raise RunError(
            "there is a key already",
            where=str(folder),
            hint="Keys are never overwritten: choose a new folder.",
        )
    secret, public = make_pair()
    create(folder / NODE_KEY, secret, 0o600)
    create(folder / NODE_PUBLIC, public, 0o644)
    return folder / NODE_PUBLIC


def read_public(file: Path) -> bytes:
    """The public half that a site sent, without whatever else is in the file."""
    try:
        key = serialization.load_ssh_public_key(file.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as err:
        raise ConfigError(f"this public key cannot be read ({err})", where=str(file)) from err
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ConfigError(
            "this is no public key of the kind that Flower takes (EC P-384)",
            where=str(file),
            hint="`vitrail flower keys site DIR` makes one.",
        )
    return key.public_bytes(_SSH, serialization.PublicFormat.OpenSSH)


def fingerprint_key(public: bytes) -> str:
    """What two people compare over the telephone; `ssh-keygen -lf FILE` says the same."""
    blob = base64.b64decode(public.split()[1])
    text = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{text.rstrip('=')}"
