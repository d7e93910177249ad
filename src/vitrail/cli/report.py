"""`vitrail report`: one offline HTML file of one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.arguments import Force, check_free_file, print_note
from vitrail.cli.progress import show_status
from vitrail.engine.release_summary import format_size
from vitrail.errors import ConfigError
from vitrail.files import write_text
from vitrail.report.compose import compose
from vitrail.report.viewer import Viewer
from vitrail.report.write_figures import write_figures


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN ...", help="Run folders.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write, in .html; else RUN/report.html."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also every figure as SVG and PNG, every table as CSV.")
    ] = None,
    with_images: Annotated[
        bool, typer.Option("--with-images", help="Show a site's images; not for sharing.")
    ] = False,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at this site's images and model.")
    ] = None,
    force: Force = False,
) -> None:
    """Tell what happened: one file that opens anywhere and loads nothing.

    Share-safe unless asked otherwise: no pixel of a site's image, no map, no file name. Embedded
    data are public and are shown.
    """
    file = out or runs[0] / "report.html"
    if file.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(
            f"a report cannot be written as {file.name!r}", where="--out", hint="Use .html."
        )
    check_free_file(file, force or out is None)
    with show_status() as tell:
        document = compose(runs, Viewer(site, with_images), tell)
    write_text(file, document.html)
    print_note(f"written: {file} ({format_size(len(document.html.encode()))})")
    if figures is not None:
        print_note(f"written: {len(write_figures(document.leaves, figures))} files in {figures}")
    if document.is_private:
        print_note("the report shows images of a site: it is for those who may see them")
