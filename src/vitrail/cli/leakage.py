"""`vitrail leakage`: defenses x attacks, one table and one page of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.attack.leakage import Grid, load_leakage
from vitrail.cli.attack import searching
from vitrail.cli.run import Quiet, Sets, _lines
from vitrail.cli.using import Force, free_file, say
from vitrail.engine.run import OnRound
from vitrail.files import write_json, write_text
from vitrail.report.leakage_curves import leakage_curves
from vitrail.report.leakage_grid import leakage_markdown, leakage_page, leakage_text, with_fidelity


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("leakage")(leakage)


def leakage(
    file: Annotated[Path, typer.Argument(help="A run's TOML file with a [leakage] section.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the grid.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    sets: Sets = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Train behind each defense, attack the same images behind each, and put it side by side.

    The undefended row is always there: a defense against an attack that never worked is no
    result. Runs and attacks that were finished are not repeated.
    """
    plan = load_leakage(file, sets or ())
    folder = out or Path("runs") / file.stem
    if json is not None:
        free_file(json, force)

    def on_run(name: str) -> OnRound | None:
        if quiet:
            return None
        typer.echo(f"training: {name}", err=True)
        return _lines()

    with searching() as tell:
        found = with_fidelity(Grid(plan, folder, on_run, tell).play())
    typer.echo(leakage_text(found))
    write_json(folder / "leakage.json", found.to_json())
    write_text(folder / "leakage.md", leakage_markdown(found) + "\n")
    drawn = leakage_curves(found, folder / "figures")
    write_text(folder / "leakage.html", leakage_page(found, drawn))
    if json is not None:
        write_json(json, found.to_json())
        say(f"written: {json}")
    for name in ("leakage.md", "leakage.json", "leakage.html"):
        say(f"written: {folder / name}")
    for path in drawn.values():
        say(f"written: {path}")
