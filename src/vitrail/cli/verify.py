"""`vitrail verify`: whether an exported model is that of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import RunFolderPath
from vitrail.errors import RunError
from vitrail.runs.exported_card import compute_run_digest
from vitrail.runs.opened_run import Run
from vitrail.runs.provenance import verify_model


def verify(
    model: Annotated[Path, typer.Argument(help="An exported model, its card beside it.")],
    run: RunFolderPath,
) -> None:
    """Check that an exported model is that of a run: file, configuration, ledgers, numbers."""
    opened = Run(run)
    checks = verify_model(model, opened, compute_run_digest(opened))
    for check in checks:
        typer.echo(f"{'fits' if check.fits else 'DIFFERS':<8} {check.what}: {check.says}")
    wrong = [check for check in checks if not check.fits]
    if wrong:
        raise RunError(
            f"this model does not fit this run: {wrong[0].what}: {wrong[0].says}", where=str(model)
        )
