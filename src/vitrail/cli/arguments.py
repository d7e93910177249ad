"""What several commands share: their arguments, opening a run, and never overwriting a file.

Nothing heavy is imported here: `vitrail run` starts its workers before that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.errors import RunError

if TYPE_CHECKING:
    from vitrail.config import Loaded
    from vitrail.runs.opened_run import Run

RunFolderPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
Site = Annotated[
    str | None, typer.Option("--site", help="Use this site's own model instead of the global one.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key.")
]
DataOverrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="DATA.KEY=VALUE", help="Override a key of the data section."),
]
Reuse = Annotated[
    list[Path] | None,
    typer.Option(help="A folder of another grid, whose finished runs are copied where they fit."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress; log.txt in the run folder has it.")
]
Annotations = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", help="What was drawn on images: never counts, never leaves."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]


def add_annotations(loaded: Loaded, file: Path | None) -> Loaded:
    """A configuration with what a file says was drawn on its images."""
    if file is None:
        return loaded
    from dataclasses import replace

    from vitrail.config.annotation_section import read_annotations

    data = loaded.config.data
    drawn = (*data.annotations, *read_annotations(file))
    data = data.model_copy(update={"annotations": drawn})
    return replace(loaded, config=loaded.config.model_copy(update={"data": data}))


def open_run(path: Path) -> Run:
    """The run; for one that is not finished, say which round is used."""
    from vitrail.runs.opened_run import Run

    run = Run(path)
    if not run.finished:
        print_note(
            f"this run is not finished: using its model after round {run.round} "
            f"of {run.config.run.rounds}"
        )
    return run


def check_free_file(path: Path, force: bool) -> None:
    """Refuse a file that exists, unless it may be overwritten; a folder always."""
    if path.is_dir():
        raise RunError("this is a folder, not a file", where=str(path))
    if path.exists() and not force:
        raise RunError(
            "this file exists", where=str(path), hint="Choose another name, or add --force."
        )


def print_note(text: str) -> None:
    """A note for the person at the terminal; the output proper stays on stdout."""
    print(text, file=sys.stderr)
