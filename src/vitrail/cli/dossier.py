"""`vitrail dossier`: one page for a data-protection officer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Force, RunFolderPath, check_free_file, print_note
from vitrail.errors import ConfigError
from vitrail.files import write_text
from vitrail.report.pages.dossier_page import TO_FILL, render_dossier
from vitrail.runs.opened_run import Run


def dossier(
    run: RunFolderPath,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, in .html.")],
    force: Force = False,
) -> None:
    """Write a page for a data-protection officer: what was processed, what left, what is proved."""
    if out.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(
            f"a dossier cannot be written as {out.name!r}",
            where="--out",
            hint="Use .html; a browser prints it as PDF.",
        )
    check_free_file(out, force)
    write_text(out, render_dossier(Run(run)))
    print_note(f"written: {out}; what is marked {TO_FILL} is for you to say")
