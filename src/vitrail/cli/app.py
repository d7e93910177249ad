"""All commands, gathered."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from vitrail import __version__

MODULES = (  # in the order of `vitrail --help`
    "run",
    "config",
    "use",
    "sweep",
    "explain",
    "audit",
    "ledger",
    "fidelity",
    "attack",
    "leakage",
    "report",
    "personalize",
    "preview",
    "flower",
)

app = typer.Typer(
    name="vitrail",
    help="Federated learning for images that people can see through, and strangers cannot.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vitrail {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Federated learning for images that people can see through, and strangers cannot."""
    del version


for name in MODULES:
    import_module(f"vitrail.cli.{name}").register(app)
