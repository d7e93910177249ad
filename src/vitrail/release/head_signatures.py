"""Signatures under heads of ledgers: of a site's node key, and of a certificate's key.

They need the package `cryptography`, which comes with an extra; nothing else of a ledger does.
"""

from __future__ import annotations

import base64
import hashlib


def is_signed_by_node(public: bytes, statement: bytes, signature: str) -> bool:
    """Whether the private half of a node's public key signed a statement."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_ssh_public_key(public)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return _is_signed(key, statement, signature)


def is_signed_by_certificate(certificate: str, statement: bytes, signature: str) -> bool:
    """Whether the key of a certificate signed a statement."""
    from cryptography import x509

    try:
        key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    except ValueError:
        return False
    return _is_signed(key, statement, signature)


def is_issued_by(certificate: str, authority: bytes) -> bool:
    """Whether an authority issued a certificate; when it expires does not matter here."""
    from cryptography import x509

    try:
        issued = x509.load_pem_x509_certificate(certificate.encode())
        issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except Exception:  # what can be wrong with a certificate is no closed list
        return False
    return True


def sign_with_key(private: bytes, statement: bytes) -> str:
    """The signature of an EC key in PEM, in hexadecimal."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(private, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("this private key is of another kind")
    return key.sign(statement, ec.ECDSA(hashes.SHA384())).hex()


def fingerprint_public(public: str) -> str:
    """The fingerprint of a node's public key, as `vitrail flower check` says it."""
    try:
        return _fingerprint(base64.b64decode(public.split()[1]))
    except (IndexError, ValueError):
        return "unreadable"


def fingerprint_certificate(certificate: str) -> str:
    """The fingerprint of a certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        issued = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        return "unreadable"
    return _fingerprint(issued.public_bytes(Encoding.DER))


def _fingerprint(raw: bytes) -> str:
    return f"SHA256:{base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip('=')}"


def _is_signed(key: object, statement: bytes, signature: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(bytes.fromhex(signature), statement, ec.ECDSA(hashes.SHA384()))
    except (ValueError, InvalidSignature):
        return False
    return True
