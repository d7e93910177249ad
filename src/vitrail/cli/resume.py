"""`vitrail resume`: go on with a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import vitrail
from vitrail.cli.arguments import Quiet
from vitrail.cli.progress import show_round_progress
from vitrail.cli.run import show_results


def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    workers: Annotated[int | None, typer.Option(help="Another number of worker processes.")] = None,
    quiet: Quiet = False,
) -> None:
    """Go on after a stop or a crash; the result is the same, to the bit."""
    with show_round_progress(quiet) as on_round:
        vitrail.resume(run, on_round, workers)
    show_results(run, quiet)
