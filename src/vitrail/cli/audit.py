"""`vitrail audit`: which site, which class, which part, how sure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vitrail.audit.consensus import agreement, averages_subspaces
from vitrail.audit.federation import Audit
from vitrail.audit.finding import WORDS
from vitrail.audit.gather import audit_run
from vitrail.cli.using import Force, RunFolderPath, free_file, say
from vitrail.engine.loaded import Run
from vitrail.errors import ConfigError
from vitrail.files import write_json, write_text
from vitrail.report.audit_page import Album, audit_page
from vitrail.report.audit_words import leading, p_text
from vitrail.report.consensus_picture import consensus_lines
from vitrail.report.document.sights import keep_audit

_EVERY = 5.0  # seconds between lines of progress where there is no terminal


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    run: RunFolderPath,
    sites: Annotated[
        list[str] | None,
        typer.Option("--site", metavar="NAME", help="Audit this site only; may be repeated."),
    ] = None,
    lenders: Annotated[
        list[str] | None,
        typer.Option(
            "--lend",
            metavar="NAME",
            help="This site agreed to lend its local model to the audit; may be repeated.",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A report to write, in .html.")
    ] = None,
    with_images: Annotated[
        bool, typer.Option("--with-images", help="Show the sites' images in the report.")
    ] = False,
    force: Force = False,
) -> None:
    """Find out which site taught the model something it should not know.

    Each site is audited on its own images, with its own model and the shared one, against figures
    that the other sites told. What a site tells is in its ledger; no image leaves it.
    """
    _check(json, out, force)
    opened = Run(run)
    album = Album()
    with progress() as tell:
        found = audit_run(opened, sites or None, tell=tell, keep=album, lenders=lenders or ())
    if not sites:
        keep_audit(opened, found, album.looks)  # for `vitrail report`
    _print(found)
    _agreement(opened)
    if json is not None:
        write_json(json, found.to_json())
        say(f"written: {json}")
    if out is not None:
        shown = with_images or bool(opened.card.get("public"))
        write_text(out, audit_page(opened, found, album.looks, shown))
        say(f"written: {out}")
        if with_images:
            say("the report shows images of the audited sites: it is for those who may see them")


def _agreement(run: Run) -> None:
    """Where classes are subspaces, who stands apart from the agreed ones; the server knows that."""
    if averages_subspaces(run):
        typer.echo("\nSubspaces:")
        for line in consensus_lines(agreement(run)):
            typer.echo(line)


def _check(json: Path | None, out: Path | None, force: bool) -> None:
    """Whether the files may be written, before minutes of work."""
    if out is not None and out.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(
            f"a report cannot be written as {out.name!r}",
            where="--out",
            hint="Use a name in .html; --json FILE writes the numbers.",
        )
    for path in (json, out):
        if path is not None:
            free_file(path, force)
    if json is not None and json == out:
        raise ConfigError("both files have one name", where="--json")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
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


def _print(found: Audit) -> None:
    """A line a site, then the worst finding in a sentence."""
    wide = max(len(site.site) for site in found.sites)
    for site in found.sites:
        top = site.findings[0] if site.findings else None
        if top is None:
            told = "not tested"
        else:
            verdict = found.verdict(top)
            told = f"{WORDS[verdict]:<13} highest score {top.score:.1f} ({top.label})"
            if verdict != "clear":
                told = f"{WORDS[verdict]:<13} {top.label}, p {p_text(found.p_value(top))}"
        few = f"; too few images: {', '.join(site.skipped)}" if site.skipped else ""
        typer.echo(f"{site.site:<{wide}}  {told}{few}")
    worst = leading(found)
    if worst is not None:
        typer.echo(f"\n{worst.sentence}\nWhat to do: {found.action(worst)}.")
    elif any(site.findings for site in found.sites):
        typer.echo("\nNo bias seen.")
    else:
        typer.echo("\nNothing could be tested: too few images of each class, or one class only.")
