"""Certificates and keys of a federation: an authority, the coordinator's certificate, node keys.

The authority signs the coordinator's TLS certificate; sites get its public half and know by it
whom they talk to. Each site has an EC P-384 key pair; the coordinator gets the public half and
knows by it who talks. A pair that a site made itself is known by its public half only; one that is
made here for a site lies in a folder of its own, to be handed over, and whoever made it could keep
it. Private keys are readable by their owner alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vitrail.errors import ConfigError, RunError
from vitrail.files import create, make_folder_name, write_json
from vitrail.flower.node_key import NODE_KEY, make_pair, read_public

DAYS = 365
LOCAL = ("localhost", "127.0.0.1")
_AUTHORITY_LIVES = 10  # times as long as a certificate, so that it can issue the next ones
_PEM = serialization.Encoding.PEM
_BARE = serialization.NoEncryption()


@dataclass(frozen=True)
class RollEntry:
    """A site in the roll: since when it has its key, and when that was revoked, if it was."""

    since: str = ""
    revoked: str = ""


@dataclass(frozen=True)
class Keys:
    """Where the files of a federation's keys lie."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, for everybody."""
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """The authority's private key, which belongs off line."""
        return self.folder / "authority" / "ca.key"

    @property
    def certificate(self) -> Path:
        """The coordinator's certificate."""
        return self.folder / "server" / "server.pem"

    @property
    def private(self) -> Path:
        """The coordinator's private key."""
        return self.folder / "server" / "server.key"

    @property
    def roll(self) -> Path:
        """Names of the sites, since when each has its key, and which were revoked."""
        return self.folder / "server" / "sites.json"

    @property
    def revoked(self) -> Path:
        """Keys and certificates that were in use before, by the time they ended."""
        return self.folder / "server" / "revoked"

    def list_sites(self) -> list[str]:
        """The names of the sites whose keys are known and not revoked."""
        return [name for name, entry in self.read_roll().items() if not entry.revoked]

    def read_roll(self) -> dict[str, RollEntry]:
        """Every site there ever was; an older roll is a list of names."""
        try:
            raw = json.loads(self.roll.read_text(encoding="utf-8"))
            if isinstance(raw, list):
                return {str(name): RollEntry() for name in raw}
            return {str(name): RollEntry(**entry) for name, entry in raw.items()}
        except (OSError, ValueError, TypeError, AttributeError) as err:
            raise RunError(
                f"the roll of sites cannot be read ({err})", where=str(self.roll)
            ) from err

    def write_roll(self, roll: Mapping[str, RollEntry]) -> None:
        """Replace the roll as a whole."""
        write_json(self.roll, {name: asdict(entry) for name, entry in roll.items()})

    def public(self, site: str) -> Path:
        """A site's public key, as the coordinator has it."""
        return self.folder / "server" / "sites" / f"{make_folder_name(site)}.pub"

    def site(self, site: str) -> Path:
        """The folder to hand over to a site: the authority's certificate, the public keys of all
        sites, and its private key unless it has made its own."""
        return self.folder / "sites" / make_folder_name(site)


def make_keys(
    folder: str | Path,
    sites: Sequence[str],
    hosts: Sequence[str],
    days: int = DAYS,
    own: Mapping[str, Path] | None = None,
) -> Keys:
    """Make all keys of a federation in a new folder; of the sites in `own`, who made theirs, only
    the public half is read."""
    keys = Keys(Path(folder))
    if keys.folder.exists() and any(keys.folder.iterdir()):
        raise RunError(
            "this folder is not empty",
            where=str(folder),
            hint="Keys are never overwritten: choose a new folder.",
        )
    if not sites or len(set(sites)) < len(sites) or not all(sites):
        raise ConfigError("a federation needs the names of its sites, each once", where="--site")
    if not hosts:
        raise ConfigError("the sites must know the coordinator by a name", where="--host")
    if days < 1:
        raise ConfigError("certificates must be valid for at least a day", where="--days")
    pairs = _collect_pairs(sites, own or {})
    root, certificate = _make_authority(_AUTHORITY_LIVES * days)
    create(keys.authority, certificate.public_bytes(_PEM), 0o644)
    create(keys.authority_key, encode_private(root), 0o600)
    known = tuple(dict.fromkeys((*hosts, *LOCAL)))  # its own commands reach it from here
    key, signed = make_server_certificate(root, known, days)
    create(keys.certificate, signed.public_bytes(_PEM), 0o644)
    create(keys.private, encode_private(key), 0o600)
    for site, (secret, public) in pairs.items():
        create(keys.public(site), public, 0o644)
        if secret:
            create(keys.site(site) / NODE_KEY, secret, 0o600)
        create(keys.site(site) / "ca.pem", certificate.public_bytes(_PEM), 0o644)
        for other in sites:  # by which they know each other's masks, without the coordinator
            create(locate_peer_key(keys.site(other), site), public, 0o644)
    keys.write_roll({site: RollEntry(make_stamp()) for site in sites})
    return keys


def _collect_pairs(sites: Sequence[str], own: Mapping[str, Path]) -> dict[str, tuple[bytes, bytes]]:
    """By site, its private half (empty where the site keeps it) and its public half."""
    pairs = {site: (b"", read_public(own[site])) if site in own else make_pair() for site in sites}
    if len({public for _, public in pairs.values()}) < len(pairs):
        raise ConfigError(
            "two sites have the same public key",
            where="--public",
            hint="Each site makes its own with `vitrail flower keys site DIR`.",
        )
    return pairs


def locate_peer_key(folder: Path, site: str) -> Path:
    """Where a site's folder of keys has the public key of another site."""
    return folder / "peers" / f"{make_folder_name(site)}.pub"


def encode_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as the coordinator keeps it."""
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _BARE)


def _start_certificate(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = _now()
    hour = datetime.timedelta(hours=1)  # clocks differ
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - hour)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def make_stamp() -> str:
    """Now, as files and the roll have it."""
    return _now().strftime("%Y-%m-%dT%H%M%SZ")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


_AUTHORITY = "Vitrail federation authority"


def _make_authority(days: int) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    builder = _start_certificate(_AUTHORITY, _AUTHORITY, key.public_key(), days).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return key, builder.sign(key, hashes.SHA384())


def make_server_certificate(
    root: ec.EllipticCurvePrivateKey, hosts: Sequence[str], days: int
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A new key of the coordinator, and its certificate for some names by an authority."""
    key = ec.generate_private_key(ec.SECP384R1())
    names = x509.SubjectAlternativeName([_make_general_name(host) for host in hosts])
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = _start_certificate(hosts[0], _AUTHORITY, key.public_key(), days)
    builder = builder.add_extension(names, critical=False).add_extension(use, critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False
    )
    return key, builder.sign(root, hashes.SHA384())


def _make_general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def find_certificate_problems(
    certificate: Path, authority: Path, private: Path | None = None
) -> list[str]:
    """What is wrong with a certificate: expired, not yet valid, foreign, not of this key."""
    try:
        issued = x509.load_pem_x509_certificate(certificate.read_bytes())
        root = x509.load_pem_x509_certificate(authority.read_bytes())
    except (OSError, ValueError) as err:
        return [f"it cannot be read ({err})"]
    wrong = []
    now = _now()
    if now > issued.not_valid_after_utc:
        wrong.append(f"it expired on {issued.not_valid_after_utc:%Y-%m-%d}")
    if now < issued.not_valid_before_utc:
        wrong.append("it is not valid yet: check this machine's clock")
    try:
        issued.verify_directly_issued_by(root)
    except Exception:
        wrong.append(f"it was not signed by the authority of {authority.name}")
    if private is not None:
        try:
            key = serialization.load_pem_private_key(private.read_bytes(), None)
            if key.public_key() != issued.public_key():
                wrong.append(f"it does not belong to the private key {private.name}")
        except (OSError, ValueError) as err:
            wrong.append(f"its private key cannot be read ({err})")
    return wrong


def read_last_day(certificate: Path) -> str:
    """The last day on which a certificate is valid."""
    issued = x509.load_pem_x509_certificate(certificate.read_bytes())
    return f"{issued.not_valid_after_utc:%Y-%m-%d}"
