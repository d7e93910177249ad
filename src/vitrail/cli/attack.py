"""`vitrail attack`: what a curious server gets out of what a run released."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitrail.attack import ATTACKS, Budget
from vitrail.attack.assault import Assault, assault
from vitrail.attack.budget import Tell
from vitrail.attack.cases import Choice
from vitrail.cli.using import Force, RunFolderPath, free_file, say
from vitrail.config.load import parse_overrides
from vitrail.engine.loaded import Run
from vitrail.errors import ConfigError
from vitrail.files import write_json, write_text
from vitrail.report.document.stolen import keep_attack
from vitrail.report.leakage_page import attack_page
from vitrail.report.leakage_table import rows_text

_EVERY = 5.0  # seconds between lines of progress where there is no terminal


Images = Annotated[
    int | None, typer.Option("--images", help="How many images to get back; left out: 8.")
]
Sites = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="NAME", help="Attack this site; may be repeated."),
]
Round = Annotated[
    int | None, typer.Option("--round", help="The round; left out: the first recorded.")
]
Labels = Annotated[
    Literal["both", "known", "inferred"],
    typer.Option(help="Both: inferred ones too, where they are not all right."),
]
Sees = Annotated[Literal["update", "sum"], typer.Option(help="A site's update, or only the sum.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="ATTACK.KEY=VALUE", help="An option of an attack."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("attack")(attack)


def attack(
    run: RunFolderPath,
    attacks: Annotated[
        str, typer.Option("--attacks", metavar="NAME,...", help="Which; `list` names them all.")
    ] = "ig",
    images: Images = None,
    sites: Sites = None,
    round_: Round = None,
    labels: Labels = "both",
    sees: Sees = "update",
    iterations: Annotated[int | None, typer.Option(help="Steps of a search.")] = None,
    seconds: Annotated[float | None, typer.Option(help="The longest a search may take.")] = None,
    public: Annotated[Path | None, typer.Option(help="Public images, for generators.")] = None,
    sets: Options = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A page, in .html.")] = None,
    force: Force = False,
) -> None:
    """Try to get the sites' images back from exactly what they released.

    It reads the server's side of the run only; the true images, for the scores, come from the
    data source. The run must have been made with `[run] record_updates = true`.
    """
    if attacks == "list":
        return _list()
    for path in (json, out):
        if path is not None:
            free_file(path, force)
    if out is not None and out.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(f"a page cannot be written as {out.name!r}", where="--out")
    opened = Run(run)
    with searching() as tell:
        found = assault(
            opened,
            names(attacks),
            Choice(images, tuple(sites or ()), round_, sees),
            Budget(iterations, seconds),
            options=parse_overrides(sets or ()),
            labels=labels,
            public=public,
            tell=tell,
        )
    keep_attack(opened, found)  # for `vitrail report`
    _print(found)
    if json is not None:
        write_json(json, found.to_json())
        say(f"written: {json}")
    if out is not None:
        write_text(out, attack_page(found))
        say(f"written: {out}")
        say("the page shows the sites' images: it is for those who may see them")


def names(text: str) -> tuple[str, ...]:
    """The attacks of a comma-separated list, each of which must exist."""
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise ConfigError("no attack is named", where="--attacks", hint="Try --attacks list.")
    return found


def _list() -> None:
    wide = max(map(len, ATTACKS))
    for name, kind in ATTACKS.items():
        typer.echo(f"{name:<{wide}}  {kind.summary}{f' ({kind.paper})' if kind.paper else ''}")


def _print(found: Assault) -> None:
    if found.rows:
        typer.echo(rows_text(found.rows))
    for line in found.lines():
        typer.echo(line)


@contextmanager
def searching() -> Iterator[Callable[[str], Tell]]:
    """A bar for each search on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:

        def begin(name: str) -> Tell:
            task = bar.add_task(name, total=1, note="")

            def tell(done: int, total: int, note: str) -> None:
                bar.update(task, completed=done, total=total, note=note)

            return tell

        yield begin


def _lines() -> Callable[[str], Tell]:
    last = [time.monotonic()]

    def begin(name: str) -> Tell:
        def tell(done: int, total: int, note: str) -> None:
            if time.monotonic() - last[0] > _EVERY:
                last[0] = time.monotonic()
                print(f"{name} {done}/{total} {note}", file=sys.stderr, flush=True)

        return tell

    return begin
