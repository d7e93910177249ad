"""The page "what the model looks for": every prototype, class by class."""

from __future__ import annotations

from html import escape

from vitrail.explain.unit_list import Unit, list_units
from vitrail.models.heads.part_head import require_part_head
from vitrail.report.explain_images import Explainer
from vitrail.report.pages.evidence_page import store_photos
from vitrail.report.pages.page_elements import (
    draw_box,
    draw_photo,
    draw_shade,
    format_number,
    render_page,
)
from vitrail.report.training_patches import Patches


def render_prototypes_page(explainer: Explainer) -> str:
    """One HTML document: patch (the asking site's own), weight, twins, masked or not."""
    card, patches = explainer.run.card, explainer.patches
    units = list_units(require_part_head(explainer.model.network), explainer.model.classes)
    lead = (
        f'<p class="soft">{escape(explainer.title)} · {escape(card["method"])} on '
        f"{escape(card['backbone'])} · round {explainer.run.round}</p>"
        f"<p>{_write_summary(units, patches)}</p>"
        '<p class="soft">A picture is the training patch of this site that comes closest to a '
        "prototype, and a weight is what one unit of similarity adds to the logit.</p>"
    )
    shown = [patches.get(unit.number) for unit in units]
    body = store_photos([patch for patch in shown if patch is not None])
    for label, name in enumerate(explainer.model.classes):
        class_units = [unit for unit in units if unit.owner == label]
        cards = "".join(_render_card(unit, patches) for unit in class_units)
        noun = "prototype" if len(class_units) == 1 else "prototypes"
        body.append(
            f'<section><h2>{escape(name)}</h2><p class="soft">{len(class_units)} {noun}</p>'
            f'<ul class="units">{cards}</ul></section>'
        )
    return render_page("What the model looks for", lead, body)


def _write_summary(units: list[Unit], patches: Patches) -> str:
    """The state of the prototypes in one sentence."""
    alive = [unit for unit in units if unit.alive]
    twins = sum(bool(unit.twins) for unit in alive)
    parts = [f"{len(units)} prototypes", f"{len(units) - len(alive)} masked out"]
    if patches.grounded is not None:
        parts.append(f"{len(patches.grounded)} grounded on images of this site")
    parts.append(f"{twins} nearly equal to another one of their class")
    return escape(", ".join(parts)) + "."


def _render_card(unit: Unit, patches: Patches) -> str:
    patch = patches.get(unit.number)
    name = f"prototype {unit.number}"
    if patch is None:
        view = f'<div class="blank">{escape(patches.explain_missing(unit.number))}</div>'
    else:
        size = (patch.pixels.shape[0], patch.pixels.shape[1])
        label = f"{name} of class {unit.class_name}: its training patch in {patch.image}"
        marks = draw_shade(size, patch.box) + draw_box(patch.box)
        view = draw_photo(f"t{patch.row}", size, label, marks)
    facts = []
    if unit.weight is not None:
        facts.append(f"weight to its class {format_number(unit.weight)}")
    if unit.also is not None:
        facts.append(f"also speaks for {escape(unit.also[0])}, {format_number(unit.also[1])}")
    if patch is not None:
        facts.append(f"squared distance {format_number(patch.distance)}")
    tags = "".join(
        f'<span class="tag bad">{escape(tag)}</span>' for tag in _list_tags(unit, patches)
    )
    masked = "" if unit.alive else ' class="masked"'
    return (
        f"<li{masked}>{view}<h4>{name}</h4><small>{'<br>'.join(facts)}</small>"
        f'<div class="tags">{tags}</div></li>'
    )


def _list_tags(unit: Unit, patches: Patches) -> list[str]:
    tags = []
    if not unit.alive:
        tags.append("masked out")
    if patches.grounded is not None and unit.number not in patches.grounded:
        tags.append("not grounded here")
    if unit.twins:
        tags.append("same as " + ", ".join(map(str, unit.twins)))
    return tags
