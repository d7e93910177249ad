"""`vitrail preview`: what would be shared, before anything leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.run import Sets
from vitrail.cli.using import Force, free_file, say
from vitrail.config import load
from vitrail.errors import ConfigError
from vitrail.files import write_text
from vitrail.release.images import described
from vitrail.report.preview import Previewer
from vitrail.report.preview_page import preview_page


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("preview")(preview)


def preview(
    file: Annotated[Path, typer.Argument(help="A TOML file of a method that shares images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, in .html.")] = Path(
        "preview.html"
    ),
    site: Annotated[
        list[str] | None, typer.Option("--site", help="Only this site; may be repeated.")
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=50, help="Images to show of each site.")] = 6,
    rounds: Annotated[
        int | None,
        typer.Option(min=0, help="How long each site trains alone first; else the warm-up."),
    ] = None,
    sets: Sets = None,
    force: Force = False,
) -> None:
    """Show original, heatmap, mask and shared image of each site. Nothing leaves any site."""
    if out.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(
            f"a preview is a page, not {out.name!r}", where="--out", hint="Use a name in .html."
        )
    free_file(out, force)
    previewer = Previewer(load(file, sets or ()), rounds)
    found = []
    for one in previewer.sites(tuple(site or ())):
        typer.echo(f"{one.site}: {described(one.shared.line)}")
        found.append(one)
    write_text(out, preview_page(found, str(file), previewer.rounds, images))
    say(f"written: {out}; nothing left any site")
