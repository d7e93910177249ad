"""`vitrail tune`: the same small search for every row of a grid, on validation images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Overrides, Quiet
from vitrail.cli.grids import announce_cells
from vitrail.config.load import load
from vitrail.files import write_text
from vitrail.sweep.tune import FROZEN, format_search, tune_rows


def tune(
    file: Annotated[Path, typer.Argument(help="A TOML file with a [tune] section.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the search.")] = None,
    sets: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Choose each row's settings on images that are never tested; goes on where it stopped."""
    folder = out or Path("runs") / f"{file.stem}-tune"
    rows = tune_rows(load(file, tuple(sets or ())), folder, announce_cells(quiet))
    text = format_search(rows)
    write_text(folder / "search.md", text + "\n")
    typer.echo(text)
    typer.echo(f"frozen in {folder / FROZEN}")
