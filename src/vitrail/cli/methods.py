"""`vitrail methods`: what can train a federation."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vitrail.methods import METHODS


def methods(
    poisoning: Annotated[
        bool, typer.Option("--poisoning", help="List what hostile sites can do instead.")
    ] = False,
) -> None:
    """List the methods, one line each, with the paper."""
    table = Table(box=None, pad_edge=False)
    for heading in ("attack" if poisoning else "method", "what it does", "paper"):
        table.add_column(heading, overflow="fold")
    if poisoning:
        from vitrail.poisoning import POISONINGS

        for name, attack in POISONINGS.items():
            table.add_row(name, (attack.__doc__ or "").splitlines()[0], attack.paper)
    else:
        for name, method in METHODS.items():
            table.add_row(name, method.summary, method.paper)
    Console().print(table)
