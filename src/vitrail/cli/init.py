"""`vitrail init`: from a folder of images to a file that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import check_free_file
from vitrail.data.inspect.starter_config import draft
from vitrail.files import write_text


def init(
    path: Annotated[Path, typer.Argument(help="Images: a folder, a table or an archive.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The TOML file to write.")] = None,
) -> None:
    """Check your images and write a commented TOML file that runs as it is."""
    file = out if out is not None else Path(f"{path.resolve().stem or 'images'}.toml")
    check_free_file(file, force=False)
    starter = draft(path, file)
    for line in starter.check.lines(shown=10):
        typer.echo(line)
    write_text(file, starter.text)
    typer.echo(f"\nwritten: {file}\n\n    vitrail run {_quote(file)}")


def _quote(path: Path) -> str:
    return f"'{path}'" if " " in str(path) else str(path)
