"""`vitrail attack`: what a curious server gets out of what a run released."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vitrail.attack import ATTACKS, Budget
from vitrail.attack.choice import Choice
from vitrail.attack.run_attacks import AttackResults, run_attacks
from vitrail.cli.arguments import Force, RunFolderPath, check_free_file, print_note
from vitrail.cli.progress import show_search_progress
from vitrail.config.load import parse_overrides
from vitrail.errors import ConfigError
from vitrail.files import write_json, write_text
from vitrail.report.pages.attack_page import render_attack_page
from vitrail.report.pages.attack_table import format_rows_text
from vitrail.report.sections.attack_pictures import keep_attack
from vitrail.runs.opened_run import Run

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
        return _print_attacks()
    for path in (json, out):
        if path is not None:
            check_free_file(path, force)
    if out is not None and out.suffix.casefold() not in (".html", ".htm"):
        raise ConfigError(f"a page cannot be written as {out.name!r}", where="--out")
    opened = Run(run)
    with show_search_progress() as tell:
        results = run_attacks(
            opened,
            parse_attacks(attacks),
            Choice(images, tuple(sites or ()), round_, sees),
            Budget(iterations, seconds),
            options=parse_overrides(sets or ()),
            labels=labels,
            public=public,
            tell=tell,
        )
    keep_attack(opened, results, sites or ())  # for `vitrail report`
    _print(results)
    if json is not None:
        write_json(json, results.to_json())
        print_note(f"written: {json}")
    if out is not None:
        write_text(out, render_attack_page(results))
        print_note(f"written: {out}")
        print_note("the page shows the sites' images: it is for those who may see them")


def parse_attacks(text: str) -> tuple[str, ...]:
    """The attacks of a comma-separated list, each of which must exist."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ConfigError("no attack is named", where="--attacks", hint="Try --attacks list.")
    return names


def _print_attacks() -> None:
    width = max(map(len, ATTACKS))
    for name, kind in ATTACKS.items():
        typer.echo(f"{name:<{width}}  {kind.summary}{f' ({kind.paper})' if kind.paper else ''}")


def _print(results: AttackResults) -> None:
    if results.rows:
        typer.echo(format_rows_text(results.rows))
    for line in results.lines():
        typer.echo(line)
