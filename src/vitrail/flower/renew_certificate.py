"""A new certificate for the coordinator by the same authority; the sites notice nothing."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vitrail.errors import ConfigError, RunError
from vitrail.files import write_bytes
from vitrail.flower.key_roll import set_aside
from vitrail.flower.keys import LOCAL, Keys, encode_private, make_server_certificate, make_stamp


def rotate_server(keys: Keys, hosts: Sequence[str], days: int) -> list[str]:
    """Make the coordinator's key and certificate anew, for the names it had unless others are
    given. The old ones are kept aside."""
    if days < 1:
        raise ConfigError("certificates must be valid for at least a day", where="--days")
    root = _load_authority_key(keys)
    authority = x509.load_pem_x509_certificate(keys.authority.read_bytes())
    if root.public_key() != authority.public_key():
        raise RunError("this private key is not the authority's", where=str(keys.authority_key))
    left = (authority.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days
    if days > left:
        raise ConfigError(
            f"the authority itself is valid for {max(0, left)} more days",
            where="--days",
            hint="Ask for fewer days, or make the federation's keys anew.",
        )
    known = tuple(dict.fromkeys((*(hosts or _read_hosts(keys)), *LOCAL)))
    key, certificate = make_server_certificate(root, known, days)
    stamp = make_stamp()
    set_aside(keys.certificate, keys.revoked, stamp, 0o644)
    set_aside(keys.private, keys.revoked, stamp, 0o600)
    write_bytes(keys.private, encode_private(key), mode=0o600)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    write_bytes(keys.certificate, pem, mode=0o644)
    return [
        f"a new certificate for {', '.join(known)}, valid until "
        f"{certificate.not_valid_after_utc:%Y-%m-%d}",
        "nothing is to be handed over: the sites know the authority; start the server again",
    ]


def _load_authority_key(keys: Keys) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(keys.authority_key.read_bytes(), None)
    except (OSError, ValueError) as err:
        raise RunError(
            f"the authority's private key cannot be read ({err})",
            where=str(keys.authority_key),
            hint="It is kept off line: put it back for this one command.",
        ) from err
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RunError("this private key is of another kind", where=str(keys.authority_key))
    return key


def _read_hosts(keys: Keys) -> list[str]:
    """The names and addresses of the certificate that there is."""
    try:
        issued = x509.load_pem_x509_certificate(keys.certificate.read_bytes())
        names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as err:
        raise ConfigError(
            f"the old certificate does not say for which names it was ({err})",
            where=str(keys.certificate),
            hint="Give them with --host.",
        ) from err
    return [str(name.value) for name in names]
