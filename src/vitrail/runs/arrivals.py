"""What reached a coordinator from its sites, in lines as a ledger has them.

A coordinator sees what arrives, never a site's ledger: the sums are its own journal's, and the
guarantee is what the terms ask for. What was spent, only the site's own ledger says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from vitrail.engine.plan import Plan, make_plan
from vitrail.engine.storage.run_folder import AUDIT_TABLES_FILE
from vitrail.release.accounting.promise import NO_GUARANTEE, NOTHING
from vitrail.runs.opened_run import Run

Line = dict[str, Any]


def read_arrivals(run: Run) -> dict[str, list[Line]]:
    """By site: what it told at its enrollment, its update of each round, its audit figures."""
    plan, _ = make_plan(run.loaded, run.classes, run.card["channels"])
    rows = run.rows()
    tables = _read_audit_tables(run)
    return {site: list(_list_lines(run, plan, rows, tables, site)) for site in run.sites}


def _list_lines(
    run: Run, plan: Plan, rows: list[Line], tables: dict[str, Any], site: str
) -> Iterator[Line]:
    facts = run.roster.get(site)
    if facts is not None:
        guarantee = NOTHING if plan.private else NO_GUARANTEE
        yield {"kind": "enroll", "facts": facts, "guarantee": guarantee}
    for row in rows:
        if row["site"] != site or row.get("bytes_up") is None:
            continue
        yield {
            "kind": "release",
            "round": row["round"],
            "stage": plan.stage_at(row["round"]).stage.name,
            "bytes": int(row["bytes_up"]),
            "mechanism": list(plan.config.release.defenses) or ["none"],
            "guarantee": _describe_agreed(plan, row["round"]),
        }
    if site in tables:
        size = len(json.dumps(tables[site]).encode())
        yield {"kind": "audit summary", "bytes": size, "guarantee": NO_GUARANTEE}


def _describe_agreed(plan: Plan, round_: int) -> str:
    """The guarantee that the terms ask for; figures beside the tensors are covered by none."""
    formal = [defense.name for defense in plan.defenses() if defense.formal]
    schema = plan.stage_at(round_).schema
    if not formal:
        return NO_GUARANTEE
    if schema.counts or schema.metrics:
        return f"{NO_GUARANTEE}: exact figures leave beside what {formal[0]} covers"
    return f"formal, as agreed: {', '.join(formal)}; what it spent is in the site's own ledger"


def _read_audit_tables(run: Run) -> dict[str, Any]:
    file = run.folder.server / AUDIT_TABLES_FILE
    tables: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return tables
