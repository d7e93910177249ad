"""`vitrail init`: from a folder of images to a file that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.using import free_file
from vitrail.data.starter import draft
from vitrail.files import write_text


def init(
    path: Annotated[Path, typer.Argument(help="Images: a folder, a table or an archive.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The TOML file to write.")] = None,
) -> None:
    """Check your images and write a commented TOML file that runs as it is."""
    file = out if out is not None else Path(f"{path.resolve().stem or 'images'}.toml")
    free_file(file, force=False)
    found = draft(path, file)
    for line in found.check.lines(shown=10):
        typer.echo(line)
    write_text(file, found.text)
    typer.echo(f"\nwritten: {file}\n\n    vitrail run {_quoted(file)}")


def _quoted(path: Path) -> str:
    return f"'{path}'" if " " in str(path) else str(path)
