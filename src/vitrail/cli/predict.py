"""`vitrail predict`: use the model of a run on new images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import (
    DataOverrides,
    Force,
    RunFolderPath,
    Site,
    check_free_file,
    open_run,
    print_note,
)
from vitrail.errors import DataError
from vitrail.runs.predict_images import predict as make_predictions


def predict(
    run: RunFolderPath,
    path: Annotated[
        Path, typer.Argument(help="An image, a folder of images, a table, or an archive.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.")],
    site: Site = None,
    sets: DataOverrides = None,
    force: Force = False,
) -> None:
    """Write class probabilities of new images to a CSV file."""
    check_free_file(out, force)
    opened = open_run(run)
    predictions = make_predictions(opened, path, site, sets or ())
    if predictions.failed == len(predictions):
        first = predictions.errors[0]
        raise DataError(
            f"not one of {len(predictions)} images could be read; the first: {first}",
            where=str(path),
        )
    predictions.write(out)
    print_note(f"{len(predictions) - predictions.failed} images predicted, written to {out}")
    if predictions.note is not None:
        print_note(predictions.note)
    if predictions.failed:
        print_note(f"{predictions.failed} images could not be read: see the column error")
    if predictions.problems:
        print_note(f"{len(predictions.problems)} other files are no images and were left out")
