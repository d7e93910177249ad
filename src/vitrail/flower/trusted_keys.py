"""By whom the signatures under heads of ledgers must be, read from a folder of keys."""

from __future__ import annotations

from pathlib import Path

from vitrail.errors import ConfigError
from vitrail.flower.key_roll import find_revoked_files
from vitrail.flower.keys import Keys
from vitrail.flower.node_key import read_public
from vitrail.runs.verify_ledgers import TrustedKeys


def read_trusted_keys(folder: Path) -> TrustedKeys:
    """Of a coordinator's folder all keys that there ever were, of a site's the authority alone."""
    keys = Keys(folder)
    if not keys.authority.is_file():
        raise ConfigError("there is no ca.pem", where=str(folder))
    nodes: dict[str, list[str]] = {}
    if keys.roll.is_file():
        for name in keys.read_roll():
            files = [keys.public(name), *find_revoked_files(keys, name)]
            nodes[name] = [read_public(file).decode() for file in files if file.is_file()]
    return TrustedKeys(keys.authority.read_bytes(), nodes)
