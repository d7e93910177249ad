"""`vitrail run`: train a federation, with a progress bar or without."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Annotations, Overrides, Quiet, add_annotations, print_note
from vitrail.cli.progress import show_round_progress
from vitrail.config import load
from vitrail.engine.workers.processes import start_workers
from vitrail.errors import ConfigError


def run(
    file: Annotated[Path, typer.Argument(help="A TOML file; `vitrail init PATH` writes one.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder to make.")] = None,
    sets: Overrides = None,
    debias: Annotated[
        Path | None,
        typer.Option("--debias", metavar="AUDIT.json", help="Remedy what this audit found."),
    ] = None,
    remedies: Annotated[
        list[str] | None,
        typer.Option(
            "--remedy",
            metavar="NAME",
            help="mask, penalize, weigh, leave-out, mix or harmonize, with --debias; repeatable.",
        ),
    ] = None,
    annotations: Annotations = None,
    quiet: Quiet = False,
) -> None:
    """Train a federation; writes a run folder."""
    loaded = add_annotations(load(file, sets or ()), annotations)
    if remedies and debias is None:
        raise ConfigError("a remedy needs an audit", where="--remedy", hint="Add --debias FILE.")
    with start_workers(loaded.config.run) as workers:  # before the imports: theirs take as long
        from vitrail.engine.run import start
        from vitrail.engine.storage.run_folder import find_free_folder

        if debias is not None:
            from vitrail.audit.remedy_plan import apply_remedies

            loaded = apply_remedies(loaded, debias, remedies or ())
        folder = out or find_free_folder(Path("runs"), file.stem)
        with show_round_progress(quiet) as on_round:
            start(loaded, folder, on_round, workers)
    show_results(folder, quiet)


def show_results(folder: Path, quiet: bool) -> None:
    """Draw the pictures of a finished run and say where everything is."""
    from vitrail.engine.storage.run_folder import RunFolder
    from vitrail.engine.storage.site_folder import SiteFolder
    from vitrail.release.patient_budgets import list_worst_budgets
    from vitrail.report.figures.run_pictures import draw_run_pictures
    from vitrail.runs.opened_run import Run

    pictures = draw_run_pictures(folder)
    if quiet:
        return
    typer.echo(f"run folder    {folder}")
    for name, path in pictures.items():
        typer.echo(f"{name:<13} {path}")
    typer.echo(f"metrics       {RunFolder(folder).parquet_file}")
    shared = Run(folder).card.get("shared")  # runs of earlier versions do not say
    if shared:
        typer.echo(f"shared        {shared['text']}")
    ledgers = {site: SiteFolder(folder, site).ledger().lines() for site in Run(folder).sites}
    for budget in list_worst_budgets(ledgers):
        print_note(f"no guarantee for a patient: {budget.sentence()}")
    typer.echo(f"what happened vitrail report {folder}")
