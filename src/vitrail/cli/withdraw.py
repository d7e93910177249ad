"""`vitrail withdraw`: train again without a site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import vitrail
from vitrail.cli.arguments import Quiet, print_note
from vitrail.cli.progress import show_round_progress
from vitrail.cli.run import show_results
from vitrail.engine.withdraw_site import COST_FILE


def withdraw(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    site: Annotated[str, typer.Option(help="The site that withdraws.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder to make.")] = None,
    quiet: Quiet = False,
) -> None:
    """Train again without a site that withdraws, in a new folder."""
    with show_round_progress(quiet) as on_round:
        again = vitrail.withdraw(run, site, out, on_round)
    show_results(again.path, quiet)
    if not quiet:
        cost = json.loads((again.path / COST_FILE).read_text(encoding="utf-8"))
        typer.echo(
            f"cost          {cost['rounds']} rounds again, {cost['image_steps']:.0f} images in "
            f"steps, {cost['seconds']:.0f} s at the sites"
        )
        print_note(f"what remains: {cost['remains']}")
