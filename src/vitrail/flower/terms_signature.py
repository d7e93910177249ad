"""Signatures under the terms of a run, by whoever must have seen them: an officer, another site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from vitrail.errors import ConfigError
from vitrail.files import make_folder_name, write_json
from vitrail.flower.keys import locate_peer_key
from vitrail.flower.node_signer import sign_statement, verify_statement
from vitrail.flower.terms_digest import Terms, digest_terms

_WORDS = "vitrail terms\n"


@dataclass(frozen=True)
class TermsSignature:
    """One signature: whose it is, and under the terms of which digest."""

    name: str
    digest: str
    signature: str

    def write(self, file: Path) -> None:
        """As JSON, to be handed to the coordinator."""
        write_json(file, asdict(self))

    @staticmethod
    def read(file: Path) -> TermsSignature:
        """A file that `vitrail flower terms sign` wrote."""
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            words = [raw[name] for name in ("name", "digest", "signature")]
            if not all(isinstance(word, str) for word in words):
                raise ValueError("its values are not text")
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise ConfigError(f"this is no signature under terms ({err})", where=str(file)) from err
        return TermsSignature(*words)


def sign_terms(terms: Terms, name: str, key: Path) -> TermsSignature:
    """Sign terms with a private key, under a name that sites know its public half by."""
    digest = digest_terms(terms)
    return TermsSignature(name, digest, sign_statement(key, _make_statement(digest)))


def find_valid_signers(terms: Terms, signatures: Mapping[str, str], keys: Path | None) -> set[str]:
    """The names whose signature fits, by the public keys in a site's folder: those in `signers`,
    then those of the other sites."""
    if keys is None:
        return set()
    statement = _make_statement(digest_terms(terms))
    known = {name: file for name in signatures if (file := _find_public_key(keys, name))}
    return {
        name for name, file in known.items() if verify_statement(file, statement, signatures[name])
    }


def _find_public_key(keys: Path, name: str) -> Path | None:
    own = keys / "signers" / f"{make_folder_name(name)}.pub"
    return next((file for file in (own, locate_peer_key(keys, name)) if file.is_file()), None)


def _make_statement(digest: str) -> bytes:
    return f"{_WORDS}{digest}".encode()
