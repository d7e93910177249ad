"""The prototypes of several models side by side: what does each of them look for? (MyTH, figure 3)

A row is a model, a column a prototype; the picture is the training patch of the asking site that
the prototype stands for, so rows differ where a model looks at other things on the same images.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.explain.unit_list import Unit, list_units
from vitrail.methods import METHODS
from vitrail.models.heads.part_head import require_part_head
from vitrail.report.explain_images import Explainer
from vitrail.report.figures.evidence_picture import INK, MARK, SOFT, to_plain_text
from vitrail.report.pages.page_elements import format_number
from vitrail.report.training_patches import Patches
from vitrail.runs.opened_run import ModelKind, Run

_SIDE, _NAME, _HEAD = 1.25, 1.7, 0.45  # inches of a picture, of a model's name, of a class's
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
    wide = _NAME + _SIDE * top
    high = len(shown) * (_HEAD + 1.18 * _SIDE * len(rows))
    figure = Figure(figsize=(wide, high), dpi=130, facecolor="white")
    y = high
    for label in shown:
        y -= _HEAD
        figure.text(
            0.02, (y + 0.12) / high, to_plain_text(known_classes[label]), fontsize=12, color=INK
        )
        for name, units_by_class, patches in models:
            y -= 1.18 * _SIDE
            figure.text(0.02, (y + _SIDE / 2) / high, name, fontsize=9, color=INK, va="center")
            for at, unit in enumerate(units_by_class[label][:top]):
                place = (_NAME + at * _SIDE, y + 0.16 * _SIDE, 0.94 * _SIDE, 0.94 * _SIDE)
                x0, y0, w, h = place
                axes = figure.add_axes((x0 / wide, y0 / high, w / wide, h / high))
                _draw_prototype(axes, unit, patches)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    return buffer.getvalue()


def _group_by_class(explainer: Explainer) -> list[list[Unit]]:
    """The prototypes of each class that are in use, the weightiest first."""
    units = list_units(require_part_head(explainer.model.network), explainer.model.classes)
    alive = [unit for unit in units if unit.alive]
    return [
        sorted((u for u in alive if u.owner == label), key=lambda unit: -(unit.weight or 0.0))
        for label in range(len(explainer.model.classes))
    ]


def _draw_prototype(axes: Axes, unit: Unit, patches: Patches) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    patch = patches.get(unit.number)
    weight = "" if unit.weight is None else f", weight {format_number(unit.weight, 2)}"
    axes.set_xlabel(f"{unit.number}{weight}", fontsize=6.5, color=SOFT, labelpad=2)
    if patch is None:
        axes.set_facecolor("#f4f2ec")
        why = "\n".join(textwrap.wrap(to_plain_text(patches.explain_missing(unit.number), 90), 20))
        middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, why, fontsize=6, color=SOFT, **middle)
        return
    pixels = patch.pixels
    axes.imshow(pixels[..., 0] if pixels.shape[2] == 1 else pixels, cmap="gray", vmin=0, vmax=255)
    x0, y0, x1, y1 = patch.box
    for color, width in (("black", 2.6), (MARK, 1.2)):
        box = Rectangle((x0 - 0.5, y0 - 0.5), x1 - x0, y1 - y0)
        box.set(fill=False, edgecolor=color, linewidth=width)
        axes.add_patch(box)
