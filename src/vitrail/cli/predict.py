"""`vitrail predict`: use the model of a run on new images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.using import Force, RunFolderPath, Sets, Site, free_file, open_run, say
from vitrail.engine.predict import predict as make_predictions
from vitrail.errors import DataError


def predict(
    run: RunFolderPath,
    path: Annotated[
        Path, typer.Argument(help="An image, a folder of images, a table, or an archive.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.")],
    site: Site = None,
    sets: Sets = None,
    force: Force = False,
) -> None:
    """Write class probabilities of new images to a CSV file."""
    free_file(out, force)
    opened = open_run(run)
    found = make_predictions(opened, path, site, sets or ())
    if found.failed == len(found):
        raise DataError(
            f"not one of {len(found)} images could be read; the first: {found.errors[0]}",
            where=str(path),
        )
    found.write(out)
    say(f"{len(found) - found.failed} images predicted, written to {out}")
    if found.failed:
        say(f"{found.failed} images could not be read: see the column error")
    if found.problems:
        say(f"{len(found.problems)} other files are no images and were left out")
