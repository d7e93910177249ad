"""`vitrail reproduce`: a results table of the docs, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.attack.leakage_grid import load_leakage
from vitrail.cli.arguments import Overrides, Quiet, Reuse
from vitrail.cli.grids import (
    announce_cells,
    read_grid_comparison,
    show_comparison,
    write_grid_table,
)
from vitrail.cli.leakage import play_leakage
from vitrail.errors import ConfigError
from vitrail.sweep.cells import copy_finished_runs, load_grid, run_sweep
from vitrail.sweep.reproduction import Scale, find_reproduction


def reproduce(
    name: Annotated[str, typer.Argument(help="The table to make again.")],
    data: Annotated[
        Path | None, typer.Option(help="The images, where the table needs some.")
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="An hour (some tables) or hours on two cores; the paper's size.")
    ] = "small",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the grid.")] = None,
    reuse: Reuse = None,
    sets: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Make a results table again: the same grid, the same command as in the docs."""
    table = find_reproduction(name, scale, data)
    overrides = (*table.overrides, *(sets or ()))
    folder = out or Path("runs") / f"{name}-{scale}"
    if table.is_leakage:
        if reuse:
            raise ConfigError(f"table {name!r} has no grid that shares runs", where="--reuse")
        play_leakage(load_leakage(table.file, overrides, table.scale), folder, quiet)
        return
    loaded = load_grid(table.file, overrides, table.base, table.scale)
    comparison = read_grid_comparison(loaded)
    copy_finished_runs(loaded, folder, reuse or ())
    if write_grid_table(loaded, folder, quiet):
        return
    paths = run_sweep(loaded, folder, announce_cells(quiet))
    for where in ("server", "sites"):
        typer.echo(
            f"\non the {where}' test images"
            if where == "sites"
            else "\non the server's test images"
        )
        show_comparison(paths, comparison, where, folder / "figures" / where)
