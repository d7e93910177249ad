"""Terms as a file: what a coordinator sends around before a run, to be checked and signed."""

from __future__ import annotations

import json
from pathlib import Path

from vitrail.config import load
from vitrail.errors import ConfigError
from vitrail.files import write_json
from vitrail.flower.run_terms import make_terms, resolve_terms
from vitrail.flower.terms_digest import Terms


def write_terms(federation: Path, file: Path) -> Terms:
    """The terms of a federation's TOML file, as its sites will get them, as JSON."""
    terms = make_terms(resolve_terms(load(federation)).config)
    write_json(file, terms)
    return terms


def read_terms(file: Path) -> Terms:
    """Terms from a file of theirs, or from a federation's TOML file."""
    if file.suffix == ".toml":
        return make_terms(resolve_terms(load(file)).config)
    try:
        terms = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(terms, dict) or not all(isinstance(t, dict) for t in terms.values()):
            raise ValueError("not a table of tables")
    except (OSError, ValueError) as err:
        raise ConfigError(
            f"these are no terms ({err})",
            where=str(file),
            hint="`vitrail flower terms write FEDERATION --out FILE` writes them.",
        ) from err
    return terms
