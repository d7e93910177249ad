"""`vitrail explain`: why this prediction, and what the model looks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from vitrail.audit.consensus import read_agreement
from vitrail.cli.arguments import (
    Force,
    RunFolderPath,
    Site,
    check_free_file,
    open_run,
    print_note,
)
from vitrail.data.decoding.decode import UnreadableError
from vitrail.errors import ConfigError, DataError, suggest_name
from vitrail.files import write_bytes, write_json, write_text
from vitrail.report.explain_images import Explainer, Gallery, ImageExplanation
from vitrail.report.figures.consensus_picture import describe_consensus, draw_consensus
from vitrail.report.figures.evidence_picture import draw_evidence
from vitrail.report.figures.prototypes_picture import draw_prototypes, iterate_site_models
from vitrail.report.pages.evidence_page import render_evidence_page
from vitrail.report.pages.prototypes_page import render_prototypes_page
from vitrail.runs.opened_run import ModelKind, Run

MAX_IMAGES = 200  # images a page can hold and still be opened
_FORMS = (".html", ".png", ".json")
_PICTURES = (".png", ".svg", ".json")


def explain(
    run: RunFolderPath,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: .html, .png, .svg or .json.")
    ],
    image: Annotated[
        Path | None, typer.Option("--image", help="An image, or a folder of images.")
    ] = None,
    prototypes: Annotated[
        bool, typer.Option("--prototypes", help="Show all prototypes of the model instead.")
    ] = False,
    consensus: Annotated[
        bool,
        typer.Option("--consensus", help="Show how far the sites agree on each class instead."),
    ] = False,
    others: Annotated[
        list[Path] | None,
        typer.Option("--beside", metavar="RUN", help="Another run, its prototypes beside."),
    ] = None,
    site: Site = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="global|personal|local",
            help="Which model; left out: the site's own if one is named, else the global one.",
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="NAME", help="A class to explain too; may be repeated."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Also: why the predicted class and not this one."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many parts to list for a class.")] = 5,
    force: Force = False,
) -> None:
    """Show the parts a prediction rests on, in numbers that add up to the logit.

    With --site, training patches of that site's own images are shown beside them.
    """
    form = _choose_form(out, image, prototypes, consensus, bool(others))
    check_free_file(out, force)
    if consensus:
        _write_consensus(open_run(run), out)
        return
    which = _parse_which(model)
    if others:
        write_bytes(out, _draw_beside([run, *others], site, classes or (), top))
        print_note(f"written: {out}")
        return
    explainer = Explainer(open_run(run), site, which, classes or (), top, against)
    if image is None:
        write_text(out, render_prototypes_page(explainer))
    else:
        _write(explainer, image, out, form)
    print_note(f"written: {out}")


def _parse_which(name: str | None) -> ModelKind | None:
    for which in get_args(ModelKind):
        if name == which:
            return cast(ModelKind, which)
    if name is None:
        return None
    raise ConfigError(
        f"there is no model {name!r}", where="--model", hint=suggest_name(name, get_args(ModelKind))
    )


def _draw_beside(runs: list[Path], site: str | None, classes: Sequence[str], top: int) -> bytes:
    if site is None:
        raise ConfigError(
            "patches belong to a site", where="--beside", hint="Name one with --site."
        )
    rows = list(iterate_site_models([open_run(run) for run in runs], site))
    for name in classes:
        if name not in rows[0][1].model.classes:
            raise ConfigError(
                f"there is no class {name!r} in this run",
                where="--class",
                hint=suggest_name(name, rows[0][1].model.classes),
            )
    return draw_prototypes(rows, classes, top)


def _choose_form(
    out: Path, image: Path | None, prototypes: bool, consensus: bool, several: bool = False
) -> str:
    """The kind of file, once the options fit each other."""
    asked = {"--image": image is not None, "--prototypes": prototypes, "--consensus": consensus}
    chosen = [name for name, given in asked.items() if given]
    if len(chosen) != 1:
        what = f"both {chosen[0]} and {chosen[1]}" if chosen else "nothing to explain"
        hint = "Give one of --image PATH, --prototypes or --consensus."
        raise ConfigError(what, where="explain", hint=hint)
    form = out.suffix.casefold()
    if several and not prototypes:
        raise ConfigError("--beside shows prototypes", where="explain", hint="Add --prototypes.")
    page_forms = (".png",) if several else (".html",)
    valid = {"--image": _FORMS, "--prototypes": page_forms, "--consensus": _PICTURES}[chosen[0]]
    if form not in valid:
        raise ConfigError(
            f"an explanation cannot be written as {out.name!r}",
            where="--out",
            hint=f"Use a name in {' or '.join(valid)}.",
        )
    return form


def _write_consensus(run: Run, out: Path) -> None:
    """How far the sites agree: a picture or numbers, and the ends of it in words."""
    agreement = read_agreement(run)
    if out.suffix.casefold() == ".json":
        write_json(out, agreement.to_json())
    else:
        draw_consensus(agreement, out)
    for line in describe_consensus(agreement):
        typer.echo(line)
    print_note(f"written: {out}")


def _write(explainer: Explainer, path: Path, out: Path, form: str) -> None:
    gallery = Gallery.find(explainer.run, path)
    if not len(gallery):
        raise DataError("there is no image here", where=str(path))
    if form == ".png" and len(gallery) > 1:
        raise ConfigError(
            f"a picture shows one image, and these are {len(gallery)}",
            where="--out",
            hint="Use a name in .html or .json, or give one image.",
        )
    if form == ".html" and len(gallery) > MAX_IMAGES:
        raise ConfigError(
            f"a page of {len(gallery)} images could not be opened",
            where="--image",
            hint=f"Give at most {MAX_IMAGES}, or write .json.",
        )
    if not explainer.has_parts:
        print_note(
            "this model has no parts: Grad-CAM maps instead, which do not add up to the logit"
        )
    explanations, broken = _explain_all(explainer, gallery, path)
    if form == ".html":
        write_text(out, render_evidence_page(explainer, explanations, broken))
    elif form == ".png":
        write_bytes(out, draw_evidence(explainer, explanations[0]))
    elif path.is_file() and len(gallery) == 1:
        write_json(out, explanations[0].to_json())
    else:
        write_json(
            out,
            [
                {"image": explanation.name, "evidence": explanation.to_json()}
                for explanation in explanations
            ],
        )


def _explain_all(
    explainer: Explainer, gallery: Gallery, path: Path
) -> tuple[list[ImageExplanation], list[tuple[str, str]]]:
    """What could be read and explained, and what could not be read and why."""
    explanations: list[ImageExplanation] = []
    broken: list[tuple[str, str]] = []
    for name, image in gallery.open():
        if isinstance(image, UnreadableError):
            broken.append((name, str(image)))
            print_note(f"{name} {image}")
        else:
            explanation = explainer(name, image)
            explanations.append(explanation)
            share = 100 * explanation.probabilities[explanation.predicted]
            typer.echo(f"{name}: {explanation.classes[explanation.predicted]} ({share:.1f} %)")
    if not explanations:
        raise DataError(f"{broken[0][0]} {broken[0][1]}", where=str(path))
    return explanations, broken
