"""`vitrail data`: what is in your images, what is wrong with them, and who would get which."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitrail.cli.arguments import DataOverrides, Force, check_free_file, print_note
from vitrail.config import load, parse
from vitrail.config.schema import Data
from vitrail.data.inspect.image_check import Check, draw_contact_sheet, guess_data
from vitrail.data.inspect.image_check import check as look
from vitrail.data.load_images import load as load_images
from vitrail.data.partition.partition import Partition
from vitrail.engine.federation import Federation, assemble
from vitrail.errors import ConfigError, DataError, VitrailError
from vitrail.files import write_json
from vitrail.report.figures.partition_picture import draw_partition
from vitrail.rng import derive_server_key

data = typer.Typer(help="Look at images before anything is trained.", no_args_is_help=True)

_KEY = derive_server_key(0).at("check")
_SHEET_SIZE = 96
_MOST_CLASSES = 12
_MOST_SITES = 40


@data.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="Images: a folder, a table or an archive.")],
    sheet: Annotated[
        Path | None,
        typer.Option("--contact-sheet", help="A PNG file with some images of every class."),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    sets: DataOverrides = None,
    force: Force = False,
) -> None:
    """Say what was found and list every broken, missing, duplicated or suspicious file."""
    for file in (sheet, json):
        if file is not None:
            check_free_file(file, force)
    section = describe_data(path, sets or [])
    report = look(section, Path.cwd(), _KEY)
    for line in report.lines():
        typer.echo(line)
    if json is not None:
        write_json(json, check_to_json(report))
    if sheet is not None:
        _draw_sheet(section, sheet)
    else:
        print_note("--contact-sheet FILE.png draws images of every class: look at them")
    if not report.ok:
        raise typer.Exit(1)


def describe_data(path: Path, sets: list[str]) -> Data:
    """The guess for a path, with `data.key=value` overrides on top."""
    wrong = next((text for text in sets if not text.strip().startswith("data.")), None)
    if wrong is not None:
        raise ConfigError(
            f"{wrong!r} is no key of [data]", where="--set", hint="Write data.key=value."
        )
    try:
        start = guess_data(path)
    except DataError:
        # What cannot be guessed can be said; a path that is not there cannot.
        if not sets or not path.exists():
            raise
        start = Data(path=str(path))
    raw = {"data": start.model_dump(mode="json", exclude_none=True)}
    return parse(raw, Path.cwd(), "--set", sets).config.data


def check_to_json(report: Check) -> dict[str, Any]:
    """A check as JSON values; sizes are lists of [width, height, images]."""
    values = asdict(report)
    values["sizes"] = [[w, h, n] for (w, h), n in report.sizes.items()]
    if report.depth is not None:
        values["depth"] = {"bits": report.depth.bits, "says": report.depth.describe()}
    kinds = Counter(problem.kind for problem in report.problems)
    return {**values, "modes": dict(report.modes), "ok": report.ok, "problem_counts": dict(kinds)}


def _draw_sheet(section: Data, sheet: Path) -> None:
    """A sheet of what can be read; if nothing can, the findings above say why."""
    small = section.model_copy(update={"image_size": _SHEET_SIZE, "broken": "skip"})
    try:
        draw_contact_sheet(load_images(small, Path.cwd(), _KEY), sheet)
        print_note(f"written: {sheet}")
    except VitrailError as err:
        print_note(f"no contact sheet: {err}")


@data.command("partition")
def partition(
    file: Annotated[Path, typer.Argument(help="A TOML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The PNG file to write.")],
    sets: DataOverrides = None,
    force: Force = False,
) -> None:
    """Draw which site would hold how many images of which class."""
    check_free_file(out, force)
    federation = assemble(load(file, sets or ()))
    images = federation.images
    shares = Partition(tuple(federation.sites.values()), federation.server_test)
    draw_partition(shares, images.labels, images.classes, out)
    Console().print(_make_table(federation))
    if len(federation.server_test):
        typer.echo(f"{len(federation.server_test)} test images belong to no site")
    print_note(f"written: {out}")


def _make_table(federation: Federation) -> Table:
    """Training images by site and class, and the test images of each site."""
    names = federation.images.classes
    shown = names[:_MOST_CLASSES]
    table = Table(box=None, pad_edge=False)
    table.add_column("site")
    for name in shown:
        table.add_column(Text(name), justify="right")
    if len(names) > len(shown):
        table.add_column(f"{len(names) - len(shown)} more", justify="right")
    table.add_column("train", justify="right")
    table.add_column("test", justify="right")
    for site, rows in list(federation.sites.items())[:_MOST_SITES]:
        labels = federation.images.labels[rows.train]
        counts = np.bincount(labels, minlength=len(names)).tolist()
        cells = [str(count) for count in counts[:_MOST_CLASSES]]
        cells += [str(sum(counts[_MOST_CLASSES:]))] if len(names) > len(shown) else []
        table.add_row(Text(site), *cells, str(len(rows.train)), str(len(rows.test)))
    if len(federation.sites) > _MOST_SITES:
        table.add_row(f"and {len(federation.sites) - _MOST_SITES} more")
    return table
