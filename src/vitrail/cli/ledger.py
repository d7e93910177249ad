"""`vitrail ledger`: what left each site, and under which guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vitrail.cli.arguments import Force, RunFolderPath, check_free_file, print_note
from vitrail.errors import ConfigError, RunError
from vitrail.files import write_json
from vitrail.release.image_protection import describe_remark
from vitrail.release.ledger import is_remark, read_mechanisms
from vitrail.release.patient_budgets import list_worst_budgets
from vitrail.runs.ledgers import Ledgers, Line, ReleaseTotals, SiteLedger, read_ledgers
from vitrail.runs.verify_ledgers import verify_ledgers

_ARRIVALS = (
    "This is the coordinator: what follows reached it, by its own journal. What left a site, and "
    "what that cost, is in the ledger at that site; what came too late is not counted here."
)


def ledger(
    run: RunFolderPath,
    site: Annotated[str | None, typer.Option("--site", help="This site only, by round.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A JSON file to write.")] = None,
    force: Force = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check hashes and signatures instead.")
    ] = False,
    heads: Annotated[
        Path | None, typer.Option("--heads", help="With --verify: heads that the other end kept.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="With --verify: a folder of keys to trust.")
    ] = None,
) -> None:
    """Show what left each site: how much, by which mechanism, under which guarantee.

    The sums are checked against what arrived at the server and against the accountant; a ledger
    that does not hold is an error.
    """
    if verify:
        if site is not None or json is not None:
            raise ConfigError("--verify checks all of a run", where="--site, --json")
        _print_checks(run, heads, keys)
        return
    if heads is not None or keys is not None:
        raise ConfigError("this is for --verify", where="--heads, --keys")
    if json is not None:
        check_free_file(json, force)
    ledgers = read_ledgers(run, site)
    if ledgers.end == "coordinator":
        typer.echo(_ARRIVALS)
    if site is not None:
        verb = "came from" if ledgers.end == "coordinator" else "left"
        _print_rounds(ledgers.sites[0], f"What {verb} {site}")
    _print_totals(ledgers)
    if json is not None:
        write_json(json, ledgers.to_json())
        print_note(f"written: {json}")
    if ledgers.mismatches:
        more = f" ({len(ledgers.mismatches) - 1} more after this one.)"
        raise RunError(
            f"the ledger does not hold: {ledgers.mismatches[0]}",
            where=str(run),
            hint=more.strip() if len(ledgers.mismatches) > 1 else "",
        )


def _print_checks(run: Path, heads: Path | None, keys: Path | None) -> None:
    """What was verified of each site; the first line that does not fit is an error."""
    trusted = None
    if keys is not None:
        from vitrail.flower.trusted_keys import read_trusted_keys

        trusted = read_trusted_keys(keys)
    checks = verify_ledgers(run, heads, trusted)
    for check in checks:
        for line in check.lines:
            typer.echo(f"{check.site}: {line}")
    broken = [check for check in checks if check.problem]
    if broken:
        more = [f"{check.site}: {check.problem}." for check in broken[1:]]
        raise RunError(
            f"the ledger of {broken[0].site} does not hold: {broken[0].problem}",
            where=str(run),
            hint=" ".join(more),
        )
    typer.echo("everything fits")


def _print_rounds(site: SiteLedger, title: str) -> None:
    """One line a release; what is said of a part of one has no bytes of its own."""
    table = Table(title=escape(title), title_justify="left", box=None)
    for head in ("round", "what", "bytes", "mechanism", "noise / update", "guarantee"):
        table.add_column(head, justify="right" if head in ("bytes", "noise / update") else "left")
    for line in site.guaranteed_lines:
        energies = [
            passed["figures"]["energy"]
            for passed in line.get("defenses", ())
            if "energy" in passed.get("figures", {})
        ]
        table.add_row(
            str(line.get("round", "")),
            escape(_describe_line(line)),
            "" if is_remark(line) else f"{int(line.get('bytes', 0)):,}",
            escape(", ".join(read_mechanisms(line))),
            f"{energies[-1]:.3g}" if energies else "",
            escape(describe_remark(line) if is_remark(line) else line["guarantee"]),
        )
    _show(table)


def _describe_line(line: Line) -> str:
    stage = str(line.get("stage") or line["kind"])
    return f"{stage}: {line['kind']}" if is_remark(line) else stage


def _print_totals(ledgers: Ledgers) -> None:
    """A line a site, one more for each further mechanism; formal and empirical apart."""
    table = Table(box=None)
    for head in ("site", "formal", "bytes", "epsilon", "delta", "for", "empirical", "bytes "):
        table.add_column(head, justify="left" if head in ("site", "for") else "right")
    for site in ledgers.sites:
        budgets = [
            (_format_epsilon(b["epsilon"]), f"{b['delta']:.1g}", b["unit"]) for b in site.budgets
        ] or [("", "", "")]
        table.add_row(
            escape(site.site),
            *_format_sums(site.formal),
            *budgets[0],
            *_format_sums(site.empirical),
        )
        for budget in budgets[1:]:
            table.add_row("", "", "", *budget, "", "")
    _show(table)
    for site in ledgers.sites:
        for line in site.guaranteed_lines:
            if is_remark(line):
                typer.echo(
                    f"{site.site}, {line['kind']} of round {line['round']}: {describe_remark(line)}"
                )
    named = {f"{b['mechanism']}: against {b['against']}" for s in ledgers.sites for b in s.budgets}
    for words in sorted(named):
        typer.echo(words)
    for worst in list_worst_budgets({site.site: site.lines for site in ledgers.sites}):
        typer.echo(f"No guarantee for a patient: {worst.sentence()}.")
    if any(site.simulated for site in ledgers.sites):
        typer.echo(
            "In this simulation the noise follows from run.seed: whoever knows it can take the "
            "noise off. A real site draws from a secret of its own."
        )


def _format_sums(sums: ReleaseTotals) -> tuple[str, str]:
    return f"{sums.releases:,}", f"{sums.bytes:,}"


def _format_epsilon(value: float | None) -> str:
    return "infinity" if value is None else f"{value:.4g}"


def _show(table: Table) -> None:
    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    console.print(table)
