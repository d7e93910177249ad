"""`vitrail personalize`: a site's own head on the global model of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from vitrail.cli.arguments import RunFolderPath, open_run, print_note
from vitrail.runs.personalize_head import personalize as tune


def personalize(
    run: RunFolderPath,
    site: Annotated[str, typer.Option("--site", help="The site whose images the head is for.")],
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; else the method's.")] = None,
    lr: Annotated[float | None, typer.Option(min=1e-9, help="Rate; else the method's.")] = None,
) -> None:
    """Tune the head at one site; the global model stays as it was."""
    tuned = tune(open_run(run), site, epochs, lr)
    typer.echo(f"global model at {site}    {_format_accuracy(tuned.before['accuracy'])}")
    typer.echo(f"personal model at {site}  {_format_accuracy(tuned.after['accuracy'])}")
    print_note(f"written: {tuned.file}; the global model is unchanged")


def _format_accuracy(accuracy: float | None) -> str:
    return "no test images" if accuracy is None else f"accuracy {accuracy:.4f}"
