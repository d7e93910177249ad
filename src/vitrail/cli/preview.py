"""`vitrail preview`: what would be shared, before anything leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import (
    Annotations,
    Force,
    Overrides,
    add_annotations,
    check_free_file,
    print_note,
)
from vitrail.config import Loaded, load
from vitrail.engine.storage.run_end import find_run_end
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError, RunError
from vitrail.files import write_text
from vitrail.release.image_protection import describe_remark
from vitrail.report.pages.preview_page import render_preview_page
from vitrail.report.preview_sharing import Previewer


def preview(
    file: Annotated[
        Path, typer.Argument(help="A TOML file of a method that shares images, or a run folder.")
    ],
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
    annotations: Annotations = None,
    sets: Overrides = None,
    force: Force = False,
) -> None:
    """Show original, heatmap, mask and shared image of each site. Nothing leaves any site."""
    if out.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(
            f"a preview is a page, not {out.name!r}", where="--out", hint="Use a name in .html."
        )
    check_free_file(out, force)
    previewer = Previewer(add_annotations(_load(file, sets or ()), annotations), rounds)
    previews = []
    for preview_of_site in previewer.sites(tuple(site or ())):
        typer.echo(f"{preview_of_site.site}: {describe_remark(preview_of_site.shared.line)}")
        previews.append(preview_of_site)
    write_text(out, render_preview_page(previews, str(file), previewer.rounds, images))
    print_note(f"written: {out}; nothing left any site")


def _load(file: Path, sets: Sequence[str]) -> Loaded:
    """A file, or the configuration of a run folder whose images are here."""
    folder = RunFolder(file)
    if not folder.config_file.is_file():
        return load(file, sets)
    if find_run_end(folder, folder.open().config) == "coordinator":
        raise RunError(
            "the coordinator of a federation has no images: nothing can be previewed here",
            where=str(file),
            hint="A site previews its own folder of the run.",
        )
    return load(folder.config_file, sets, stored=True)
