"""What the commands that use a run share: opening it, and never overwriting a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vitrail.engine.loaded import Run
from vitrail.errors import RunError

RunFolderPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
Site = Annotated[
    str | None, typer.Option("--site", help="Use this site's own model instead of the global one.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="DATA.KEY=VALUE", help="Override a key of the data section."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]


def open_run(path: Path) -> Run:
    """The run; for one that is not finished, say which round is used."""
    run = Run(path)
    if not run.finished:
        say(
            f"this run is not finished: using its model after round {run.round} "
            f"of {run.config.run.rounds}"
        )
    return run


def free_file(path: Path, force: bool) -> None:
    """Refuse a file that exists, unless it may be overwritten; a folder always."""
    if path.is_dir():
        raise RunError("this is a folder, not a file", where=str(path))
    if path.exists() and not force:
        raise RunError(
            "this file exists", where=str(path), hint="Choose another name, or add --force."
        )


def say(text: str) -> None:
    """A note for the person at the terminal; the output proper stays on stdout."""
    print(text, file=sys.stderr)
