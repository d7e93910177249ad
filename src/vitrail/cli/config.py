"""`vitrail config show` and `vitrail methods`: what a file means, and what exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vitrail.cli.run import Sets
from vitrail.config import dump, load
from vitrail.methods import METHODS
from vitrail.methods.method import resolved
from vitrail.registry import load_plugins


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Configuration files.", no_args_is_help=True)
    group.command("show")(show)
    app.add_typer(group, name="config")
    app.command("methods")(methods)


def show(
    file: Annotated[Path, typer.Argument(help="A TOML file.")],
    sets: Sets = None,
) -> None:
    """Print the file with every default filled in, the method's own options included."""
    loaded = load(file, sets or ())
    load_plugins(loaded.config.run.plugins, loaded.base)
    typer.echo(dump(resolved(loaded)), nl=False)


def methods() -> None:
    """List the methods, one line each, with the paper."""
    table = Table(box=None, pad_edge=False)
    for heading in ("method", "what it does", "paper"):
        table.add_column(heading, overflow="fold")
    for name, method in METHODS.items():
        table.add_row(name, method.summary, method.paper)
    Console().print(table)
