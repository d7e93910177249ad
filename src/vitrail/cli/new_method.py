"""`vitrail new-method`: the three files of something new, in your own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.plugin_templates import write_template


def new_method(
    name: Annotated[str, typer.Argument(help="Its name, and that of the files with _ for -.")],
    folder: Annotated[Path, typer.Option(help="Where to write; made if it is not there.")] = Path(),
    kind: Annotated[
        str,
        typer.Option(
            help="method, server-method (with a step at the server), source, backbone, defense, "
            "rule, section (of the report) or attack."
        ),
    ] = "method",
) -> None:
    """Write a method, or something else that plugs in, its test and a file that runs it."""
    module, test, config = write_template(name, folder, kind)
    for path in (module, test, config):
        typer.echo(f"written: {path}")
    typer.echo(f"\n    pytest {test}\n    vitrail run {config}")
    if kind == "section":
        typer.echo(f"    vitrail report runs/{config.stem}")
    if kind == "attack":
        typer.echo(f"    vitrail attack runs/{config.stem} --attacks {name}")
