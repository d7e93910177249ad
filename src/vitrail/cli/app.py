"""All commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from vitrail import __version__
from vitrail.cli import audit, config, explain, fidelity, personalize, report, run, sweep, use

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


for module in (run, config, use, sweep, explain, audit, fidelity, report, personalize):
    module.register(app)
