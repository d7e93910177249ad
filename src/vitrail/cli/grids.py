"""What `vitrail sweep`, `compare` and `reproduce` share: announcing cells, showing tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer

from vitrail.cli.progress import make_round_printer
from vitrail.config import Loaded
from vitrail.engine.run import OnRound
from vitrail.files import write_text
from vitrail.metrics.method_tests import table_text
from vitrail.report.write_comparison import write_comparison
from vitrail.sweep.cells import make_cells
from vitrail.sweep.checkout import load_tables
from vitrail.sweep.compare_runs import (
    ComparisonConfig,
    check_comparison_config,
    compare_runs,
    read_comparison_config,
)
from vitrail.sweep.tables import TABLES, OnCell


def read_grid_comparison(loaded: Loaded) -> ComparisonConfig:
    """How the grid wants to be compared, if that is possible."""
    comparison = read_comparison_config(loaded)
    if "table" not in loaded.sweep:
        check_comparison_config(comparison, make_cells(loaded), loaded.source)
    return comparison


def write_grid_table(loaded: Loaded, folder: Path, quiet: bool) -> bool:
    """Whether the grid names a table of its own to end in, which was then made."""
    if "table" not in loaded.sweep:
        return False
    load_tables()
    text = TABLES[str(loaded.sweep["table"])](loaded, folder, announce_cells(quiet))
    write_text(folder / "figures" / "table.md", text + "\n")
    typer.echo(text)
    return True


def announce_cells(quiet: bool) -> OnCell:
    """What is called before each run of a grid: it says which, and gives what prints its rounds."""

    def on_cell(number: int, count: int, name: str) -> OnRound | None:
        if quiet:
            return None
        typer.echo(f"[{number + 1}/{count}] {name}", err=True)
        return make_round_printer()

    return on_cell


def show_comparison(
    paths: Sequence[Path],
    comparison: ComparisonConfig,
    on: Literal["auto", "server", "sites"],
    out: Path | None,
) -> None:
    """Print the comparison of some runs and, with a folder, write its tables and curves."""
    tables = compare_runs(paths, where=on, **comparison.model_dump())
    if not tables:
        typer.echo(f"no run has {comparison.figure} there")
    for table in tables:
        if table.setting:
            typer.echo(f"\n{table.setting}")
        typer.echo(table_text(table.rows))
        for note in table.notes:
            typer.echo(f"note: {note}")
    if out is not None:
        for path in write_comparison(tables, out):
            typer.echo(f"wrote {path}")
