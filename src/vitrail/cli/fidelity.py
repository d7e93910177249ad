"""`vitrail fidelity`: how much a defense changed the explanations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitrail.audit.map_fidelity import FidelityReport, measure_fidelity
from vitrail.cli.arguments import Force, Site, check_free_file, open_run, print_note
from vitrail.errors import ConfigError
from vitrail.files import write_json, write_text
from vitrail.report.figures.fidelity_picture import draw_fidelity
from vitrail.report.pages.fidelity_page import COLUMNS, describe_defenses, render_fidelity_page


def fidelity(
    baseline: Annotated[Path, typer.Argument(metavar="RUN_A", help="The run without a defense.")],
    others: Annotated[
        list[Path], typer.Argument(metavar="RUN_B...", help="The runs with one, same images.")
    ],
    images: Annotated[int, typer.Option(min=1, help="At most so many test images.")] = 200,
    site: Site = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A page or picture to write: .html, .png.")
    ] = None,
    with_images: Annotated[
        bool, typer.Option("--with-images", help="Show the sites' images in it.")
    ] = False,
    force: Force = False,
) -> None:
    """Compare the explanations of runs with those of a run without a defense, image by image."""
    _check(json, out, force)
    first = open_run(baseline)
    report = measure_fidelity(first, [open_run(path) for path in others], images, site)
    _print(report)
    if json is not None:
        write_json(json, report.to_json())
        print_note(f"written: {json}")
    if out is not None:
        _draw(report, out, with_images or bool(first.card.get("public")))
        print_note(f"written: {out}")


def _check(json: Path | None, out: Path | None, force: bool) -> None:
    """Whether the files may be written, before minutes of work."""
    if out is not None and out.suffix.casefold() not in (".html", ".htm", ".png"):
        raise ConfigError(
            f"a page cannot be written as {out.name!r}",
            where="--out",
            hint="Use a name in .html or .png; --json FILE writes the numbers.",
        )
    for path in (json, out):
        if path is not None:
            check_free_file(path, force)


def _draw(report: FidelityReport, out: Path, shown: bool) -> None:
    if out.suffix.casefold() != ".png":
        write_text(out, render_fidelity_page(report, shown))
        return
    if not shown:
        raise ConfigError(
            "a picture would show images of the sites",
            where="--out",
            hint="Add --with-images for somebody who may see them, or write an .html page.",
        )
    draw_fidelity(report, out)


def _print(report: FidelityReport) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file has room for all columns
    head = f"{report.images} images, baseline {report.baseline}: accuracy {report.accuracy:.3f}"
    console.print(Text(head))
    table = Table(box=None, pad_edge=False)
    table.add_column("defense")
    for name in ("accuracy", "same answer", *COLUMNS.values(), "deletion", "failures"):
        table.add_column(name, justify="right")
    for run in report.runs:
        values = [run.figures.get(name) for name in COLUMNS]
        table.add_row(
            describe_defenses(run),
            f"{run.accuracy:.3f}",
            f"{run.agreement:.3f}",
            *("undefined" if v is None else f"{v:.3g}" for v in values),
            f"{run.deletion:+.3f}",
            str(run.failures),
        )
    console.print(table)
    for run in report.runs:
        if run.prototype_drift is not None:
            console.print(
                Text(f"{describe_defenses(run)}: prototype drift {run.prototype_drift:.3f}")
            )
        if run.subspace_angle is not None:
            console.print(
                Text(f"{describe_defenses(run)}: subspace angle {run.subspace_angle:.1f} degrees")
            )
        for note in run.notes:
            console.print(Text(f"note: {run.run}: {note}"))
