"""`vitrail sweep`, `vitrail compare` and `vitrail reproduce`: grids of runs and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from vitrail.cli.leakage import leakage
from vitrail.cli.run import Quiet, Sets, _lines
from vitrail.config import Loaded
from vitrail.engine.run import OnRound
from vitrail.engine.sweep import cells, load_grid, run_sweep, take_over
from vitrail.errors import ConfigError
from vitrail.files import write_text
from vitrail.report import (  # noqa: F401  (they register their tables)
    debias_table,
    exam_table,
    fidelity_table,
    parts_table,
    price,
    privacy_table,
    share,
    trial_table,
    truth_grid,
)
from vitrail.report.compare import (
    Ending,
    check_ending,
    compare_runs,
    ending,
    write_comparison,
)
from vitrail.report.presets import Scale, leaks, reproduction
from vitrail.report.statistics import Alternative, table_text
from vitrail.report.tables import TABLES

Reuse = Annotated[
    list[Path] | None,
    typer.Option(help="A folder of another grid, whose finished runs are copied where they fit."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("sweep")(sweep)
    app.command("compare")(compare)
    app.command("reproduce")(reproduce)


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with a [sweep] section of lists.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the grid.")] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="accuracy, balanced_accuracy, auroc, loss, ...")
    ] = None,
    reuse: Reuse = None,
    sets: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Run a grid; skips what is finished, resumes what was interrupted, ends in compare."""
    loaded = load_grid(file, tuple(sets or ()))
    asked = _asked(loaded)
    folder = out or Path("runs") / file.stem
    take_over(loaded, folder, reuse or ())
    if _ended(loaded, folder, quiet):
        return
    paths = run_sweep(loaded, folder, _announce(quiet))
    asked = asked.model_copy(update={"figure": figure or asked.figure})
    _show(paths, asked, "auto", folder / "figures")


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders.")],
    figure: Annotated[
        str, typer.Option("--figure", help="accuracy, balanced_accuracy, auroc, loss, ...")
    ] = "accuracy",
    baseline: Annotated[str | None, typer.Option(help="The row others are compared with.")] = None,
    on: Annotated[
        Literal["auto", "server", "sites"],
        typer.Option(help="Whose test images: the server's or the sites' own."),
    ] = "auto",
    alternative: Annotated[
        Alternative, typer.Option(help="Two-sided tests, or whether a row is greater or less.")
    ] = "two-sided",
    last: Annotated[
        int, typer.Option(min=1, help="A run's figure is the mean of so many last evaluations.")
    ] = 1,
    until: Annotated[
        int | None, typer.Option(min=1, help="Compare as if every run had ended after this round.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for tables and curves.")
    ] = None,
) -> None:
    """Methods side by side over seeds: mean, SD, test, Holm correction, effect size."""
    asked = Ending(
        figure=figure, baseline=baseline, alternative=alternative, last=last, until=until
    )
    _show(runs, asked, on, out)


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
    sets: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Make a results table again: the same grid, the same command as in the docs."""
    file, overrides = reproduction(name, scale, data)
    if leaks(name):
        if reuse:
            raise ConfigError(f"table {name!r} has no grid that shares runs", where="--reuse")
        leakage(
            file, out or Path("runs") / f"{name}-{scale}", None, [*overrides, *(sets or ())], quiet
        )
        return
    base = data if data is not None and not overrides else None
    loaded = load_grid(file, (*overrides, *(sets or ())), base)
    asked = _asked(loaded)
    folder = out or Path("runs") / f"{name}-{scale}"
    take_over(loaded, folder, reuse or ())
    if _ended(loaded, folder, quiet):
        return
    paths = run_sweep(loaded, folder, _announce(quiet))
    for where in ("server", "sites"):
        typer.echo(
            f"\non the {where}' test images"
            if where == "sites"
            else "\non the server's test images"
        )
        _show(paths, asked, where, folder / "figures" / where)


def _asked(loaded: Loaded) -> Ending:
    """How the grid wants to be compared, if that is possible."""
    asked = ending(loaded)
    if "table" not in loaded.sweep:
        check_ending(asked, cells(loaded), loaded.source)
    return asked


def _ended(loaded: Loaded, folder: Path, quiet: bool) -> bool:
    """Whether the grid names a table of its own to end in, which was then made."""
    if "table" not in loaded.sweep:
        return False
    text = TABLES[str(loaded.sweep["table"])](loaded, folder, _announce(quiet))
    write_text(folder / "figures" / "table.md", text + "\n")
    typer.echo(text)
    return True


def _announce(quiet: bool):  # type: ignore[no-untyped-def]
    def on_cell(number: int, count: int, name: str) -> OnRound | None:
        if quiet:
            return None
        typer.echo(f"[{number + 1}/{count}] {name}", err=True)
        return _lines()

    return on_cell


def _show(
    paths: Sequence[Path],
    asked: Ending,
    on: Literal["auto", "server", "sites"],
    out: Path | None,
) -> None:
    tables = compare_runs(paths, where=on, **asked.model_dump())
    if not tables:
        typer.echo(f"no run has {asked.figure} there")
    for table in tables:
        if table.setting:
            typer.echo(f"\n{table.setting}")
        typer.echo(table_text(table.rows))
        for note in table.notes:
            typer.echo(f"note: {note}")
    if out is not None:
        for path in write_comparison(tables, out):
            typer.echo(f"wrote {path}")
