"""`vitrail audit`: which site, which class, which part, how sure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vitrail.audit.audit_run import audit_run
from vitrail.audit.consensus import averages_subspaces, read_agreement
from vitrail.audit.federation_view import Audit
from vitrail.audit.finding import VERDICT_WORDS
from vitrail.audit.remedy_trial import ROUNDS, RemedyTrial, try_remedies
from vitrail.audit.told_figures import AT_A_SITE, ToldFigures, require_told_figures
from vitrail.audit.update_alarms import UpdateAlarms, read_update_alarms
from vitrail.cli.arguments import Force, RunFolderPath, check_free_file, print_note
from vitrail.cli.progress import show_status
from vitrail.errors import ConfigError
from vitrail.files import write_json, write_text
from vitrail.report.figures.consensus_picture import describe_consensus
from vitrail.report.pages.audit_page import ExampleCollector, render_audit_page
from vitrail.report.pages.audit_words import format_p_value, list_doubted, write_headline
from vitrail.report.sections.audit_pictures import keep_audit
from vitrail.runs.opened_run import Run

_TOLD = 10  # contrasts that are printed; --json has them all


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
    remedy: Annotated[
        bool,
        typer.Option(
            "--remedy", help="Try the remedies that the readings call for, a few rounds each."
        ),
    ] = False,
    rounds: Annotated[
        int, typer.Option("--remedy-rounds", min=1, help="Rounds of each try.")
    ] = ROUNDS,
    force: Force = False,
) -> None:
    """Find out which site taught the model something it should not know.

    Each site is audited on its own images, with its own model and the shared one, against figures
    that the other sites told. What a site tells is in its ledger; no image leaves it.
    """
    _check(json, out, force)
    opened = Run(run)
    if opened.end == "coordinator":
        _print_told(require_told_figures(opened), read_update_alarms(opened), json, out)
        return
    album = ExampleCollector()
    with show_status() as tell:
        audited = audit_run(opened, sites or None, tell=tell, keep=album, lenders=lenders or ())
        if remedy:
            audited = replace(audited, trial=try_remedies(opened, audited, rounds, tell))
    if not sites:
        keep_audit(opened, audited, album.examples)  # for `vitrail report`
    _print(audited)
    _print_agreement(opened)
    if audited.updates is not None:
        _print_updates(audited.updates)
    if audited.trial is not None:
        _print_trial(audited.trial)
    if json is not None:
        write_json(json, audited.to_json())
        print_note(f"written: {json}")
    if out is not None:
        shown = with_images or bool(opened.card.get("public"))
        write_text(out, render_audit_page(opened, audited, album.examples, shown))
        print_note(f"written: {out}")
        if with_images:
            print_note(
                "the report shows images of the audited sites: it is for those who may see them"
            )


def _print_told(
    figures: ToldFigures, updates: UpdateAlarms, json: Path | None, out: Path | None
) -> None:
    """A coordinator has no images: what the sites told, joined, the largest contrast first."""
    if out is not None:
        raise ConfigError(
            "the page of an audit shows verdicts, and a coordinator has none",
            where="--out",
            hint="`vitrail report` shows what the sites told; --json writes it to a file.",
        )
    typer.echo("This is the coordinator. The sites told these figures for the audit:")
    for one in figures.contrasts[:_TOLD]:
        typer.echo(
            f"{one.site}: {one.label}: {one.contrast.verdict}, {one.contrast.effect:.1f} standard "
            f"deviations from the other sites, {one.place}, "
            f"p {format_p_value(one.contrast.p_value)}"
        )
    if not figures.contrasts:
        typer.echo("nothing that compares: too few images of each class")
    if figures.silent:
        typer.echo(f"nothing came from: {', '.join(figures.silent)}")
    typer.echo(AT_A_SITE)
    _print_updates(updates)
    if json is not None:
        write_json(json, {**figures.to_json(), "updates": updates.to_json()})
        print_note(f"written: {json}")


def _print_trial(trial: RemedyTrial) -> None:
    """Before and after side by side; recall on test images, the choice on validation images."""
    typer.echo(f"\nRemedies, tried for {trial.rounds} rounds from the audited model:")
    for one in trial.tried:
        shares = [
            f"{word} {'-' if share is None else format(share, '.2f')}"
            for word, share in (
                ("biased", one.test.biased),
                ("unbiased", one.test.unbiased),
                ("other classes", one.test.others),
            )
        ]
        effect = "" if one.effect is None else f"; {one.effect}"
        typer.echo(f"{one.name:<10} {', '.join(shares)}{effect}")
    for name, why in trial.skipped.items():
        typer.echo(f"{name:<10} not tried: {why}")
    typer.echo(trial.sentence)


def _print_agreement(run: Run) -> None:
    """Where classes are subspaces, who stands apart from the agreed ones; the server knows that."""
    if averages_subspaces(run):
        typer.echo("\nSubspaces:")
        for line in describe_consensus(read_agreement(run)):
            typer.echo(line)


def _print_updates(updates: UpdateAlarms) -> None:
    """What the server saw of the sites' updates while the run went on."""
    typer.echo("\nUpdates, as the server saw them:")
    for line in updates.describe():
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
            check_free_file(path, force)
    if json is not None and json == out:
        raise ConfigError("both files have one name", where="--json")


def _print(audited: Audit) -> None:
    """A line a site, then the worst finding in a sentence."""
    width = max(len(site.site) for site in audited.sites)
    for site in audited.sites:
        top = site.findings[0] if site.findings else None
        if top is None:
            result = "not tested"
        else:
            verdict = audited.verdict(top)
            result = f"highest score {top.score:.1f} ({top.label})"
            if verdict != "clear":
                result = f"{top.label}, p {format_p_value(audited.p_value(top))}"
            result = f"{VERDICT_WORDS[verdict]:<13} {result}"
        few = f"; too few images: {', '.join(site.skipped)}" if site.skipped else ""
        typer.echo(f"{site.site:<{width}}  {result}{few}")
    for name, why in audited.doubts.items():
        typer.echo(f"what {name} told does not fit together: {why}")
    written = audited.to_json()
    typer.echo(f"\n{write_headline(written)[1]}.")
    for worst in list_doubted(written)[:1]:
        typer.echo(f"{worst['sentence']}\nWhat to do: {worst['action']}.")
