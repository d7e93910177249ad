"""`vitrail explain`: why this prediction, and what the model looks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from vitrail.audit.consensus import agreement
from vitrail.cli.using import Force, RunFolderPath, Site, free_file, open_run, say
from vitrail.data.decode import UnreadableError
from vitrail.engine.loaded import Run, Which
from vitrail.errors import ConfigError, DataError, nearest
from vitrail.files import write_bytes, write_json, write_text
from vitrail.report.beside import beside, rows_of
from vitrail.report.consensus_picture import consensus_lines, consensus_picture
from vitrail.report.evidence_page import evidence_page
from vitrail.report.evidence_picture import evidence_picture
from vitrail.report.explanation import Explained, Explainer, Gallery
from vitrail.report.prototypes_page import prototypes_page

MOST = 200  # images a page can hold and still be opened
_FORMS = (".html", ".png", ".json")
_PICTURES = (".png", ".svg", ".json")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


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
    top: Annotated[int, typer.Option(help="How many parts to list for a class.")] = 5,
    force: Force = False,
) -> None:
    """Show the parts a prediction rests on, in numbers that add up to the logit.

    With --site, training patches of that site's own images are shown beside them.
    """
    form = _form(out, image, prototypes, consensus, bool(others))
    free_file(out, force)
    if consensus:
        _consensus(open_run(run), out)
        return
    which = _which(model)
    if others:
        write_bytes(out, _beside([run, *others], site, classes or (), top))
        say(f"written: {out}")
        return
    explainer = Explainer(open_run(run), site, which, classes or (), top)
    if image is None:
        write_text(out, prototypes_page(explainer))
    else:
        _write(explainer, image, out, form)
    say(f"written: {out}")


def _which(name: str | None) -> Which | None:
    for which in get_args(Which):
        if name == which:
            return cast(Which, which)
    if name is None:
        return None
    raise ConfigError(
        f"there is no model {name!r}", where="--model", hint=nearest(name, get_args(Which))
    )


def _beside(runs: list[Path], site: str | None, classes: Sequence[str], top: int) -> bytes:
    if site is None:
        raise ConfigError(
            "patches belong to a site", where="--beside", hint="Name one with --site."
        )
    rows = list(rows_of([open_run(run) for run in runs], site))
    for name in classes:
        if name not in rows[0][1].model.classes:
            raise ConfigError(
                f"there is no class {name!r} in this run",
                where="--class",
                hint=nearest(name, rows[0][1].model.classes),
            )
    return beside(rows, classes, top)


def _form(
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
    own = (".png",) if several else (".html",)
    valid = {"--image": _FORMS, "--prototypes": own, "--consensus": _PICTURES}[chosen[0]]
    if form not in valid:
        raise ConfigError(
            f"an explanation cannot be written as {out.name!r}",
            where="--out",
            hint=f"Use a name in {' or '.join(valid)}.",
        )
    return form


def _consensus(run: Run, out: Path) -> None:
    """How far the sites agree: a picture or numbers, and the ends of it in words."""
    found = agreement(run)
    if out.suffix.casefold() == ".json":
        write_json(out, found.to_json())
    else:
        consensus_picture(found, out)
    for line in consensus_lines(found):
        typer.echo(line)
    say(f"written: {out}")


def _write(explainer: Explainer, path: Path, out: Path, form: str) -> None:
    gallery = Gallery.at(explainer.run, path)
    if not len(gallery):
        raise DataError("there is no image here", where=str(path))
    if form == ".png" and len(gallery) > 1:
        raise ConfigError(
            f"a picture shows one image, and these are {len(gallery)}",
            where="--out",
            hint="Use a name in .html or .json, or give one image.",
        )
    if form == ".html" and len(gallery) > MOST:
        raise ConfigError(
            f"a page of {len(gallery)} images could not be opened",
            where="--image",
            hint=f"Give at most {MOST}, or write .json.",
        )
    if not explainer.parts:
        say("this model has no parts: Grad-CAM maps instead, which do not add up to the logit")
    found, broken = _explained(explainer, gallery, path)
    if form == ".html":
        write_text(out, evidence_page(explainer, found, broken))
    elif form == ".png":
        write_bytes(out, evidence_picture(explainer, found[0]))
    elif path.is_file() and len(gallery) == 1:
        write_json(out, found[0].plain())
    else:
        write_json(out, [{"image": one.name, "evidence": one.plain()} for one in found])


def _explained(
    explainer: Explainer, gallery: Gallery, path: Path
) -> tuple[list[Explained], list[tuple[str, str]]]:
    """What could be read and explained, and what could not be read and why."""
    found: list[Explained] = []
    broken: list[tuple[str, str]] = []
    for name, image in gallery.open():
        if isinstance(image, UnreadableError):
            broken.append((name, str(image)))
            say(f"{name} {image}")
        else:
            one = explainer(name, image)
            found.append(one)
            share = 100 * one.probabilities[one.predicted]
            typer.echo(f"{name}: {one.classes[one.predicted]} ({share:.1f} %)")
    if not found:
        raise DataError(f"{broken[0][0]} {broken[0][1]}", where=str(path))
    return found, broken
