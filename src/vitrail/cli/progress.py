"""What a person sees while a command works: a live bar on a terminal, lines in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from vitrail.attack.budget import Tell
    from vitrail.engine.run import OnRound
    from vitrail.engine.run import Progress as Round

_EVERY = 5.0  # seconds between lines of progress where there is no terminal


@contextmanager
def show_round_progress(quiet: bool) -> Iterator[OnRound | None]:
    """A live bar on a terminal, one line a round in a log file, nothing if quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _show_bar() as on_round:
            yield on_round
    else:
        yield make_round_printer()


def _format_metrics(progress: Round) -> str:
    text = "" if progress.accuracy is None else f"accuracy {progress.accuracy:.3f}"
    if progress.loss is not None:
        text += f"  loss {progress.loss:.3f}"
    text += f"  sites {progress.sites}  {progress.bytes / 1e6:.1f} MB"
    if progress.dropped:
        text += f"  dropped {progress.dropped}"
    return text + (f"  refused {progress.refused}" if progress.refused else "")


def _is_beside_rounds(progress: Round) -> bool:
    """Whether it is about work beside the rounds: features, sites alone."""
    return progress.note not in ("", "closing")


def make_round_printer() -> OnRound:
    """One line a round, for a log file."""
    last = [0.0]

    def on_round(progress: Round) -> None:
        if _is_beside_rounds(progress):
            if time.monotonic() - last[0] > 5:
                last[0] = time.monotonic()
                print(progress.note, file=sys.stderr, flush=True)
            return
        head = (
            "final" if progress.note == "closing" else f"round {progress.round}/{progress.rounds}"
        )
        print(f"{head}  {_format_metrics(progress)}", file=sys.stderr, flush=True)

    return on_round


@contextmanager
def _show_bar() -> Iterator[OnRound]:
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[metrics]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("loading", total=1, metrics="")

        def on_round(progress: Round) -> None:
            if _is_beside_rounds(progress):
                words, _, count = progress.note.rpartition(" ")
                done, total = count.split("/")
                bar.update(task, description=words, completed=int(done), total=int(total))
                return
            bar.update(
                task,
                description="done" if progress.note == "closing" else "round",
                completed=progress.round,
                total=max(1, progress.rounds),
                metrics=_format_metrics(progress),
            )

        yield on_round


@contextmanager
def show_search_progress() -> Iterator[Callable[[str], Tell]]:
    """A bar for each search on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _make_search_printer()
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


def _make_search_printer() -> Callable[[str], Tell]:
    last = [time.monotonic()]

    def begin(name: str) -> Tell:
        def tell(done: int, total: int, note: str) -> None:
            if time.monotonic() - last[0] > _EVERY:
                last[0] = time.monotonic()
                print(f"{name} {done}/{total} {note}", file=sys.stderr, flush=True)

        return tell

    return begin


@contextmanager
def show_status() -> Iterator[Callable[[str], None]]:
    """What is being done, on stderr: one line that changes, or a line now and then."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("loading") as status:
            yield lambda text: status.update(escape(text))
        return
    last = [time.monotonic()]

    def tell(text: str) -> None:
        if time.monotonic() - last[0] > _EVERY:
            last[0] = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    yield tell
