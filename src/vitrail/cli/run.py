"""`vitrail run` and `vitrail resume`: train a federation, with a progress bar or without."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitrail.audit.obey import obey
from vitrail.config import load
from vitrail.engine import Progress as Round
from vitrail.engine import RunFolder, resume, start
from vitrail.engine.folder import free_folder
from vitrail.engine.loaded import Run
from vitrail.engine.run import OnRound
from vitrail.errors import ConfigError
from vitrail.report.pictures import run_pictures

Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress; log.txt in the run folder has it.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run")(run_command)
    app.command("resume")(resume_command)


def run_command(
    file: Annotated[Path, typer.Argument(help="A TOML file; `vitrail init PATH` writes one.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder to make.")] = None,
    sets: Sets = None,
    debias: Annotated[
        Path | None,
        typer.Option("--debias", metavar="AUDIT.json", help="Remedy what this audit found."),
    ] = None,
    remedies: Annotated[
        list[str] | None,
        typer.Option(
            "--remedy",
            metavar="NAME",
            help="mask, penalize, weigh, leave-out or mix, with --debias; may be repeated.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train a federation; writes a run folder."""
    loaded = load(file, sets or ())
    if debias is not None:
        loaded = obey(loaded, debias, remedies or ())
    elif remedies:
        raise ConfigError("a remedy needs an audit", where="--remedy", hint="Add --debias FILE.")
    folder = out or free_folder(Path("runs"), file.stem)
    with progress(quiet) as on_round:
        start(loaded, folder, on_round)
    finish(folder, quiet)


def resume_command(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    workers: Annotated[int | None, typer.Option(help="Another number of worker processes.")] = None,
    quiet: Quiet = False,
) -> None:
    """Go on after a stop or a crash; the result is the same, to the bit."""
    with progress(quiet) as on_round:
        resume(run, workers, on_round)
    finish(run, quiet)


def finish(folder: Path, quiet: bool) -> None:
    """Draw the pictures of a finished run and say where everything is."""
    pictures = run_pictures(folder)
    if quiet:
        return
    typer.echo(f"run folder    {folder}")
    for name, path in pictures.items():
        typer.echo(f"{name:<13} {path}")
    typer.echo(f"metrics       {RunFolder(folder).parquet_file}")
    shared = Run(folder).card.get("shared")  # runs of earlier versions do not say
    if shared:
        typer.echo(f"shared        {shared['text']}")
    typer.echo(f"what happened vitrail report {folder}")


@contextmanager
def progress(quiet: bool) -> Iterator[OnRound | None]:
    """A live bar on a terminal, one line a round in a log file, nothing if quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as on_round:
            yield on_round
    else:
        yield _lines()


def _figures(p: Round) -> str:
    text = "" if p.accuracy is None else f"accuracy {p.accuracy:.3f}"
    if p.loss is not None:
        text += f"  loss {p.loss:.3f}"
    text += f"  sites {p.sites}  {p.bytes / 1e6:.1f} MB"
    if p.dropped:
        text += f"  dropped {p.dropped}"
    return text + (f"  refused {p.refused}" if p.refused else "")


def _beside(p: Round) -> bool:
    """Whether it is about work beside the rounds: features, sites alone."""
    return p.note not in ("", "closing")


def _lines() -> OnRound:
    last = [0.0]

    def on_round(p: Round) -> None:
        if _beside(p):
            if time.monotonic() - last[0] > 5:
                last[0] = time.monotonic()
                print(p.note, file=sys.stderr, flush=True)
            return
        head = "final" if p.note == "closing" else f"round {p.round}/{p.rounds}"
        print(f"{head}  {_figures(p)}", file=sys.stderr, flush=True)

    return on_round


@contextmanager
def _bar() -> Iterator[OnRound]:
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("loading", total=1, figures="")

        def on_round(p: Round) -> None:
            if _beside(p):
                words, _, count = p.note.rpartition(" ")
                done, total = count.split("/")
                bar.update(task, description=words, completed=int(done), total=int(total))
                return
            bar.update(
                task,
                description="done" if p.note == "closing" else "round",
                completed=p.round,
                total=max(1, p.rounds),
                figures=_figures(p),
            )

        yield on_round
