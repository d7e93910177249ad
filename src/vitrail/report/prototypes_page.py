"""The page "what the model looks for": every prototype, class by class."""

from __future__ import annotations

from html import escape

from vitrail.explain.prototypes import Unit, units
from vitrail.models.pieces import part_head
from vitrail.report.evidence_html import drawing, framed, number, page, shaded
from vitrail.report.evidence_page import photos
from vitrail.report.explanation import Explainer
from vitrail.report.patches import Patches


def prototypes_page(explainer: Explainer) -> str:
    """One HTML document: patch (the asking site's own), weight, twins, masked or not."""
    card, patches = explainer.run.card, explainer.patches
    found = units(part_head(explainer.model.network), explainer.model.classes)
    lead = (
        f'<p class="soft">{escape(explainer.title)} · {escape(card["method"])} on '
        f"{escape(card['backbone'])} · round {explainer.run.round}</p>"
        f"<p>{_summary(found, patches)}</p>"
        '<p class="soft">A picture is the training patch of this site that comes closest to a '
        "prototype, and a weight is what one unit of similarity adds to the logit.</p>"
    )
    shown = [patches.get(unit.number) for unit in found]
    body = photos([patch for patch in shown if patch is not None])
    for label, name in enumerate(explainer.model.classes):
        mine = [unit for unit in found if unit.owner == label]
        cards = "".join(_card(unit, patches) for unit in mine)
        noun = "prototype" if len(mine) == 1 else "prototypes"
        body.append(
            f'<section><h2>{escape(name)}</h2><p class="soft">{len(mine)} {noun}</p>'
            f'<ul class="units">{cards}</ul></section>'
        )
    return page("What the model looks for", lead, body)


def _summary(found: list[Unit], patches: Patches) -> str:
    """The state of the prototypes in one sentence."""
    alive = [unit for unit in found if unit.alive]
    twins = sum(bool(unit.twins) for unit in alive)
    told = [f"{len(found)} prototypes", f"{len(found) - len(alive)} masked out"]
    if patches.grounded is not None:
        told.append(f"{len(patches.grounded)} grounded on images of this site")
    told.append(f"{twins} nearly equal to another one of their class")
    return escape(", ".join(told)) + "."


def _card(unit: Unit, patches: Patches) -> str:
    patch = patches.get(unit.number)
    name = f"prototype {unit.number}"
    if patch is None:
        view = f'<div class="blank">{escape(patches.sentence(unit.number))}</div>'
    else:
        size = (patch.pixels.shape[0], patch.pixels.shape[1])
        label = f"{name} of class {unit.class_name}: its training patch in {patch.image}"
        marks = shaded(size, patch.box) + framed(patch.box)
        view = drawing(f"t{patch.row}", size, label, marks)
    facts = []
    if unit.weight is not None:
        facts.append(f"weight to its class {number(unit.weight)}")
    if unit.also is not None:
        facts.append(f"also speaks for {escape(unit.also[0])}, {number(unit.also[1])}")
    if patch is not None:
        facts.append(f"squared distance {number(patch.distance)}")
    tags = "".join(f'<span class="tag bad">{escape(tag)}</span>' for tag in _tags(unit, patches))
    masked = "" if unit.alive else ' class="masked"'
    return (
        f"<li{masked}>{view}<h4>{name}</h4><small>{'<br>'.join(facts)}</small>"
        f'<div class="tags">{tags}</div></li>'
    )


def _tags(unit: Unit, patches: Patches) -> list[str]:
    tags = []
    if not unit.alive:
        tags.append("masked out")
    if patches.grounded is not None and unit.number not in patches.grounded:
        tags.append("not grounded here")
    if unit.twins:
        tags.append("same as " + ", ".join(map(str, unit.twins)))
    return tags
