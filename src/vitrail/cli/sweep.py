"""`vitrail sweep`: a grid of runs and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Overrides, Quiet, Reuse
from vitrail.cli.grids import (
    announce_cells,
    read_grid_comparison,
    show_comparison,
    write_grid_table,
)
from vitrail.sweep.cells import copy_finished_runs, load_grid, run_sweep


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with a [sweep] section of lists.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the grid.")] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="accuracy, balanced_accuracy, auroc, loss, ...")
    ] = None,
    reuse: Reuse = None,
    sets: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Run a grid; skips what is finished, resumes what was interrupted, ends in compare."""
    loaded = load_grid(file, tuple(sets or ()))
    comparison = read_grid_comparison(loaded)
    folder = out or Path("runs") / file.stem
    copy_finished_runs(loaded, folder, reuse or ())
    if write_grid_table(loaded, folder, quiet):
        return
    paths = run_sweep(loaded, folder, announce_cells(quiet))
    comparison = comparison.model_copy(update={"figure": figure or comparison.figure})
    show_comparison(paths, comparison, "auto", folder / "figures")
