"""`vitrail evaluate`: the model of a run on new, labeled images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitrail.cli.using import Force, RunFolderPath, Sets, Site, free_file, open_run, say
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
    sets: Sets = None,
    force: Force = False,
) -> None:
    """Measure a model on new images: AUROC, calibration, confusion, intervals by patient."""
    written = [json] if json is not None else []
    for path in written + (Evaluation.files(out) if out is not None else []):
        free_file(path, force)
    found = measure(open_run(run), data, site, sets or (), split)
    _print(found)
    if json is not None:
        write_json(json, found.plain())
    if out is not None:
        written += found.write(out)
    for path in written:
        say(f"written: {path}")


def _print(found: Evaluation) -> None:
    console = Console()
    whose = "global model" if found.site is None else f"model of {found.site}"
    patients = "" if found.patients is None else f" of {found.patients} patients"
    head = f"{found.method}, {whose}, round {found.round}: {found.images} images{patients}"
    console.print(Text(head))
    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, figure in found.figures.items():
        value = "undefined" if figure.value is None else f"{figure.value:.3f}"
        limits = "" if figure.low is None else f"{figure.low:.3f} to {figure.high:.3f}"
        table.add_row(_NAMES.get(name, name), value, limits)
    console.print(table)
    for note in found.notes:
        console.print(Text(f"note: {note}"))
