"""`vitrail budget`: what all runs have spent on a site's images, and what another would cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vitrail.cli.arguments import Force, check_free_file, print_note
from vitrail.files import write_json

if TYPE_CHECKING:
    from vitrail.flower.site.lifetime_ledger import LifetimeLedger
    from vitrail.flower.site.site_config import SiteConfig


def budget(
    file: Annotated[Path, typer.Argument(metavar="SITE", help="The site's own TOML file.")],
    terms: Annotated[
        Path | None, typer.Option("--terms", help="Terms of a planned run, to see what it costs.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="An SVG or PNG file: what each run spent, what is left."),
    ] = None,
    force: Force = False,
) -> None:
    """Show what all runs have spent on a site's images, on which, and what a planned run costs."""
    from vitrail.flower.site.lifetime_forecast import describe_unmatched, format_epsilon
    from vitrail.flower.site.lifetime_ledger import LifetimeLedger
    from vitrail.flower.site.site_config import SiteConfig

    for target in (json, picture):
        if target is not None:
            check_free_file(target, force)
    config = SiteConfig.open(file)
    delta, ledger = config.policy.lifetime_delta, LifetimeLedger(config)
    ledger.check()
    ledger.settle()
    runs, shares = ledger.list_runs(), ledger.list_shares()
    table = Table(title=f"Runs at {escape(config.name)}, delta {delta:g}")
    for column in ("run", "data", "images or patients", "epsilon", "over"):
        table.add_column(column)
    for run in runs:
        count = "any" if run.keys is None else f"{len(run.keys):,}"
        epsilon = format_epsilon(run.spending.compute_epsilon(delta))
        row = (run.run, run.data, count, epsilon, "yes" if run.over else "no: counted in full")
        table.add_row(*map(escape, row))
    spent = sorted(
        ((s.spending.compute_epsilon(delta), s) for s in shares), key=lambda x: (-x[0], x[1].images)
    )
    lines = [
        {"images": s.images, "epsilon": format_epsilon(e), "runs": ", ".join(r.run for r in s.runs)}
        for e, s in spent
    ]
    console = Console()
    console.print(table)
    if not runs:
        typer.echo("no run has begun at this site: nothing is spent")
    for line in lines:
        named = f"{line['images']} images or patients: epsilon {line['epsilon']}"
        typer.echo(f"{named} ({line['runs']})")
    unmatched = describe_unmatched(list(dict.fromkeys(r.run for r in runs if r.unmatched)))
    for note in unmatched:
        typer.echo(note)
    planned = None if terms is None else _show_plan(config, terms)
    if json is not None:
        write_json(
            json, {"delta": delta, "shares": lines, "planned": planned, "unmatched": unmatched}
        )
        print_note(f"written: {json}")
    if picture is not None:
        _draw(ledger, config, picture)


def _draw(ledger: LifetimeLedger, config: SiteConfig, target: Path) -> None:
    """What was spent by which run, as a picture."""
    from vitrail.files import write_bytes
    from vitrail.flower.site.lifetime_history import describe_history
    from vitrail.report.blocks import WIDE
    from vitrail.report.charts.raster import render_png
    from vitrail.report.figures.lifetime_picture import draw_history

    drawing = draw_history(describe_history(ledger, config.policy), WIDE)
    svg = target.suffix.casefold() == ".svg"
    write_bytes(target, drawing.to_svg_file().encode() if svg else render_png(drawing))
    print_note(f"written: {target}")


def _show_plan(config: SiteConfig, terms: Path) -> list[str]:
    """What a run under some terms would cost."""
    from dataclasses import replace

    from vitrail.engine.federation import load_federation
    from vitrail.engine.resolve_config import resolve_config
    from vitrail.engine.run import plan_run
    from vitrail.flower.site.lifetime_forecast import forecast_lifetime
    from vitrail.flower.terms_file import read_terms

    loaded = config.merge_terms(read_terms(terms))
    loaded = replace(loaded, config=resolve_config(loaded))
    federation = load_federation(loaded)
    forecast = forecast_lifetime(config, plan_run(loaded, federation)[0], federation)
    lines = forecast.list_lines(config.policy)
    breach = forecast.find_breach(config.policy)
    if breach is not None:
        lines.append(breach.describe())
    for line in lines:
        typer.echo(line)
    return lines
