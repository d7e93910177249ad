"""`vitrail extend`: more rounds for a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import vitrail
from vitrail.cli.arguments import Quiet
from vitrail.cli.progress import show_round_progress
from vitrail.cli.run import show_results


def extend(
    run: Annotated[Path, typer.Argument(help="The run folder of a finished run.")],
    rounds: Annotated[int, typer.Option(help="How many rounds more.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder to make.")] = None,
    workers: Annotated[int | None, typer.Option(help="Another number of worker processes.")] = None,
    quiet: Quiet = False,
) -> None:
    """More rounds for a finished run, in a new folder."""
    with show_round_progress(quiet) as on_round:
        longer = vitrail.extend(run, rounds, out, on_round, workers)
    show_results(longer.path, quiet)
