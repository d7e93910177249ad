"""`vitrail personalize`: a site's own head on the global model of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from vitrail.cli.using import RunFolderPath, open_run, say
from vitrail.engine.personalize import personalize as tune


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("personalize")(personalize)


def personalize(
    run: RunFolderPath,
    site: Annotated[str, typer.Option("--site", help="The site whose images the head is for.")],
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; else the method's.")] = None,
    lr: Annotated[float | None, typer.Option(min=1e-9, help="Rate; else the method's.")] = None,
) -> None:
    """Tune the head at one site; the global model stays as it was."""
    found = tune(open_run(run), site, epochs, lr)
    typer.echo(f"global model at {site}    {_figure(found.before['accuracy'])}")
    typer.echo(f"personal model at {site}  {_figure(found.after['accuracy'])}")
    say(f"written: {found.file}; the global model is unchanged")


def _figure(accuracy: float | None) -> str:
    return "no test images" if accuracy is None else f"accuracy {accuracy:.4f}"
