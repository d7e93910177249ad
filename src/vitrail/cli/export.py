"""`vitrail export`: hand a model on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Force, RunFolderPath, Site, open_run
from vitrail.runs.export_model import export as write_model


def export(
    run: RunFolderPath,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: .safetensors or .onnx.")
    ],
    site: Site = None,
    evidence: Annotated[
        bool,
        typer.Option("--evidence", help="ONNX: put maps and contributions beside the logits."),
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option("--images", help="ONNX: images to check the file with before it is written."),
    ] = None,
    force: Force = False,
) -> None:
    """Write a model and its card, to be used without the run folder."""
    file, card = write_model(open_run(run), out, site, force, evidence, images)
    typer.echo(f"model  {file}")
    typer.echo(f"card   {card}")
    typer.echo("Fill in intended_use, limitations and license in the card before you hand it on.")
