"""`vitrail config show`: what a file means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Overrides
from vitrail.config import dump, load
from vitrail.methods.base.method import resolve_method_options
from vitrail.registry import load_plugins

config = typer.Typer(help="Configuration files.", no_args_is_help=True)


@config.command("show")
def show(
    file: Annotated[Path, typer.Argument(help="A TOML file.")],
    sets: Overrides = None,
) -> None:
    """Print the file with every default filled in, the method's own options included."""
    loaded = load(file, sets or ())
    load_plugins(loaded.config.run.plugins, loaded.base)
    typer.echo(dump(resolve_method_options(loaded)), nl=False)
