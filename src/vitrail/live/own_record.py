"""A run as one site may see it: its own rows, ledger and findings, and what is of nobody alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vitrail.engine.federation import SERVER
from vitrail.report.run_record import ATTACK, AUDIT, FIDELITY, LEAKAGE, RunRecord


def narrow_record(record: RunRecord, site: str | None) -> RunRecord:
    """The record without other sites' figures; whole where nobody looks as a site."""
    if site is None:
        return record
    own = [row for row in record.rows if row["site"] in (SERVER, site)]
    ledgers = {site: record.ledgers.get(site, ())}
    results = {
        name: narrow_result(name, result, site)
        for name, result in record.results.items()
        if name in (AUDIT, FIDELITY) or _is_own(result, site)
    }
    return replace(record, rows=own, counts=None, ledgers=ledgers, results=results, seen_by=site)


def narrow_result(name: str, result: Mapping[str, Any], site: str) -> Mapping[str, Any]:
    """An audit with the findings of one site; other results as they are."""
    if name in (ATTACK, LEAKAGE, FIDELITY):
        return result
    sites = [entry for entry in result.get("sites", ()) if entry.get("site") == site]
    return {**{key: result[key] for key in ("origin", "level") if key in result}, "sites": sites}


def _is_own(result: Mapping[str, Any], site: str) -> bool:
    """Whether an attack was made on this site alone: figures over several sites are not its own."""
    names = result.get("sites")
    return isinstance(names, Sequence) and list(names) == [site]
