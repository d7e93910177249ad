"""What attacks got out of what was released: one table, the undefended row beside the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.report.document.block import Block, Missing
from vitrail.report.document.markup import Html, say
from vitrail.report.document.scale import figure
from vitrail.report.document.table import Column, Table

_FIRST = ("defense", "attack", "site", "attacker")


def leakage(name: str, found: Mapping[str, Any]) -> tuple[Block, ...]:
    """The rows of a leakage file; columns are whatever numbers its rows have."""
    rows = flat_rows(found)
    if not rows:
        return (Missing(say("The file of attacks has no rows.")),)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    first = [key for key in _FIRST if key in keys]
    rest = [key for key in keys if key not in first]
    columns = tuple(
        Column(key.replace("_", " "), _show, number=_numeric(rows, key)) for key in (*first, *rest)
    )
    values = tuple(tuple(row.get(key) for key in (*first, *rest)) for row in rows)
    return (Table(f"{name}-leakage", "Defenses against attacks", columns, values),)


def flat_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The plain values of each row; what is nested is left out."""
    rows = found.get("rows", found.get("results", ()))
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return []
    return [
        {k: v for k, v in row.items() if v is None or isinstance(v, str | int | float)}
        for row in rows
        if isinstance(row, Mapping)
    ]


def _numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return all(isinstance(row.get(key), int | float | None) for row in rows)


def _show(value: object) -> str | Html:
    return figure(value, 3) if isinstance(value, float) else str(value)
