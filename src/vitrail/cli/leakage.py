"""`vitrail leakage`: defenses x attacks, one table and one page of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.attack.leakage_grid import LeakageGrid, LeakagePlan, load_leakage
from vitrail.cli.arguments import Force, Overrides, Quiet, check_free_file, print_note
from vitrail.cli.progress import make_round_printer, show_search_progress
from vitrail.engine.run import OnRound
from vitrail.files import write_json, write_text
from vitrail.report.figures.leakage_curves import draw_leakage_curves
from vitrail.report.pages.leakage_page import (
    add_fidelity,
    format_leakage_markdown,
    format_leakage_text,
    render_leakage_page,
)


def leakage(
    file: Annotated[Path, typer.Argument(help="A run's TOML file with a [leakage] section.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the grid.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    sets: Overrides = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Train behind each defense, attack the same images behind each, and put it side by side.

    The undefended row is always there: a defense against an attack that never worked is no
    result. Runs and attacks that were finished are not repeated.
    """
    plan = load_leakage(file, sets or ())
    if json is not None:
        check_free_file(json, force)
    play_leakage(plan, out or Path("runs") / file.stem, quiet, json)


def play_leakage(plan: LeakagePlan, folder: Path, quiet: bool, json: Path | None = None) -> None:
    """Play a plan into a folder and write its table there, as text, as JSON and as a page."""

    def on_run(name: str) -> OnRound | None:
        if quiet:
            return None
        typer.echo(f"training: {name}", err=True)
        return make_round_printer()

    with show_search_progress() as tell:
        grid = add_fidelity(LeakageGrid(plan, folder, on_run, tell).play())
    typer.echo(format_leakage_text(grid))
    write_json(folder / "leakage.json", grid.to_json())
    write_text(folder / "leakage.md", format_leakage_markdown(grid) + "\n")
    drawn = draw_leakage_curves(grid, folder / "figures")
    write_text(folder / "leakage.html", render_leakage_page(grid, drawn))
    if json is not None:
        write_json(json, grid.to_json())
        print_note(f"written: {json}")
    for name in ("leakage.md", "leakage.json", "leakage.html"):
        print_note(f"written: {folder / name}")
    for path in drawn.values():
        print_note(f"written: {path}")
