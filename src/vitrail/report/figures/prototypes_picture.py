"""The prototypes of several models side by side: what does each of them look for? (MyTH, figure 3)

A row is a model, a column a prototype; the picture is the training patch of the asking site that
the prototype stands for, so rows differ where a model looks at other things on the same images.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.explain.unit_list import Unit, list_units
from vitrail.methods import METHODS
from vitrail.models.heads.part_head import require_part_head
from vitrail.report.charts.drawing import Drawing, Photo, Point, Shape, Text, box
from vitrail.report.charts.raster import render_png
from vitrail.report.charts.scale import shorten_text
from vitrail.report.explain_images import Explainer
from vitrail.report.figures.evidence_picture import frame_photo
from vitrail.report.pages.page_elements import format_number, image_from_array
from vitrail.report.training_patches import Patches
from vitrail.runs.opened_run import ModelKind, Run

_SIDE, _NAME, _HEAD, _ROW = 124.0, 160.0, 44.0, 146.0  # of a picture, names, a class, a row
_WORDS = {"global": "global (GM)", "personal": "personal (PM)", "local": "local (LM)"}


def iterate_site_models(runs: Sequence[Run], site: str) -> Iterator[tuple[str, Explainer]]:
    """The models that some runs hold for a site: the one of all images, its own, the shared one."""
    for run in runs:
        if METHODS[run.config.method.name].pooled:
            yield "all images (CM)", Explainer(run, run.sites[0])
            continue
        if site in run.sites and SiteFolder(run.path, site).model_file("local").exists():
            yield _WORDS["local"], Explainer(run, site, "local")
        which: ModelKind = "personal" if run.keeps_home else "global"
        yield _WORDS[which], Explainer(run, site, which)


def draw_prototypes(
    rows: Sequence[tuple[str, Explainer]], classes: Sequence[str], top: int = 5
) -> bytes:
    """One picture as PNG bytes: for each class its `top` prototypes by weight, model by model."""
    known_classes = rows[0][1].model.classes
    for name, explainer in rows:
        if explainer.model.classes != known_classes:
            raise RunError(
                f"the {name} model tells other classes apart",
                where=str(explainer.run.path),
                hint="Put models of the same classes side by side.",
            )
    shown = [known_classes.index(name) for name in classes] or list(range(len(known_classes)))
    models = [(name, _group_by_class(explainer), explainer.patches) for name, explainer in rows]
    shapes: list[Shape] = []
    y = 0.0
    for label in shown:
        name = shorten_text(known_classes[label], 0.85 * (_NAME + _SIDE * top), 16)
        shapes.append(Text((12, y + 0.6 * _HEAD), name, "ink", 16, bold=True))
        y += _HEAD
        for name, units_by_class, patches in models:
            shapes.append(Text((12, y + _SIDE / 2), shorten_text(name, _NAME - 20, 12), size=12))
            for at, unit in enumerate(units_by_class[label][:top]):
                shapes += _draw_prototype((_NAME + at * _SIDE, y), unit, patches)
            y += _ROW
    return render_png(Drawing(_NAME + _SIDE * top, y, "Prototypes side by side", "", shapes))


def _group_by_class(explainer: Explainer) -> list[list[Unit]]:
    """The prototypes of each class that are in use, the weightiest first."""
    units = list_units(require_part_head(explainer.model.network), explainer.model.classes)
    alive = [unit for unit in units if unit.alive]
    return [
        sorted((u for u in alive if u.owner == label), key=lambda unit: -(unit.weight or 0.0))
        for label in range(len(explainer.model.classes))
    ]


def _draw_prototype(at: Point, unit: Unit, patches: Patches) -> list[Shape]:
    (x, y), side = at, 0.92 * _SIDE
    patch = patches.get(unit.number)
    weight = "" if unit.weight is None else f", weight {format_number(unit.weight, 2)}"
    under = Text((x + side / 2, y + side + 11), f"{unit.number}{weight}", "soft", 10, "middle")
    if patch is None:
        why = textwrap.wrap(patches.explain_missing(unit.number), 18)[:6]
        lines = [
            Text((x + side / 2, y + 20 + 14 * n), text, "soft", 10, "middle")
            for n, text in enumerate(why)
        ]
        return [box(x, y, side, side, "quiet"), *lines, under]
    photo = frame_photo(image_from_array(patch.pixels), patch.pixels.shape[:2], [patch.box])
    return [Photo((x, y), side, side, photo, f"prototype {unit.number}"), under]
