"""`vitrail evaluate`: the model of a run on new, labeled images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitrail.cli.arguments import (
    DataOverrides,
    Force,
    RunFolderPath,
    Site,
    check_free_file,
    open_run,
    print_note,
)
from vitrail.files import write_json
from vitrail.report.evaluation import Evaluation
from vitrail.report.evaluation import evaluate as measure

_NAMES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "balanced_accuracy": "balanced accuracy",
    "ece": "calibration error (ECE)",
    "brier": "Brier score",
}


def evaluate(
    run: RunFolderPath,
    data: Annotated[Path, typer.Option("--data", help="Labeled images: a folder or a file.")],
    site: Site = None,
    split: Annotated[
        str | None, typer.Option(help="Only the images of this split: train or test.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the JSON file and pictures.")
    ] = None,
    sets: DataOverrides = None,
    force: Force = False,
) -> None:
    """Measure a model on new images: AUROC, calibration, confusion, intervals by patient."""
    written = [json] if json is not None else []
    for path in written + (Evaluation.list_files(out) if out is not None else []):
        check_free_file(path, force)
    evaluation = measure(open_run(run), data, site, sets or (), split)
    _print(evaluation)
    if json is not None:
        write_json(json, evaluation.to_json())
    if out is not None:
        written += evaluation.write(out)
    for path in written:
        print_note(f"written: {path}")


def _print(evaluation: Evaluation) -> None:
    console = Console()
    whose = "global model" if evaluation.site is None else f"model of {evaluation.site}"
    patients = "" if evaluation.patients is None else f" of {evaluation.patients} patients"
    head = f"{evaluation.method}, {whose}, round {evaluation.round}"
    console.print(Text(f"{head}: {evaluation.images} images{patients}"))
    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, figure in evaluation.figures.items():
        value = "undefined" if figure.value is None else f"{figure.value:.3f}"
        limits = "" if figure.low is None else f"{figure.low:.3f} to {figure.high:.3f}"
        table.add_row(_NAMES.get(name, name), value, limits)
    console.print(table)
    for note in evaluation.notes:
        console.print(Text(f"note: {note}"))
