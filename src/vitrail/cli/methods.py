"""`vitrail methods`: what can train a federation."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from vitrail.methods import METHODS


def methods() -> None:
    """List the methods, one line each, with the paper."""
    table = Table(box=None, pad_edge=False)
    for heading in ("method", "what it does", "paper"):
        table.add_column(heading, overflow="fold")
    for name, method in METHODS.items():
        table.add_row(name, method.summary, method.paper)
    Console().print(table)
