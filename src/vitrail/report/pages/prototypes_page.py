"""The page "what the model looks for": every prototype, class by class."""

from __future__ import annotations

from vitrail.explain.unit_list import Unit, list_units
from vitrail.models.heads.part_head import require_part_head
from vitrail.report.document_page import render_page
from vitrail.report.explain_images import Explainer
from vitrail.report.html import Html, el, join
from vitrail.report.pages.evidence_page import describe_model, draw_patch, store_photos
from vitrail.report.pages.page_elements import format_number
from vitrail.report.training_patches import Patches


def render_prototypes_page(explainer: Explainer) -> str:
    """One HTML document: patch (the asking site's own), weight, twins, masked or not."""
    patches = explainer.patches
    units = list_units(require_part_head(explainer.model.network), explainer.model.classes)
    lead = join(
        [
            describe_model(explainer),
            el("p", _write_summary(units, patches)),
            el(
                "p",
                "A picture is the training patch of this site that comes closest to a prototype, "
                "and a weight is what one unit of similarity adds to the logit.",
                class_="soft",
            ),
        ]
    )
    shown = [patches.get(unit.number) for unit in units]
    body: list[Html | None] = [*store_photos([patch for patch in shown if patch is not None])]
    for label, name in enumerate(explainer.model.classes):
        class_units = [unit for unit in units if unit.owner == label]
        cards = [render_unit_card(unit, patches) for unit in class_units]
        noun = "prototype" if len(class_units) == 1 else "prototypes"
        count = el("p", f"{len(class_units)} {noun}", class_="soft")
        body.append(el("section", el("h2", name), count, el("ul", *cards, class_="units")))
    return render_page("What the model looks for", lead, body)


def _write_summary(units: list[Unit], patches: Patches) -> str:
    """The state of the prototypes in one sentence."""
    alive = [unit for unit in units if unit.alive]
    twins = sum(bool(unit.twins) for unit in alive)
    parts = [f"{len(units)} prototypes", f"{len(units) - len(alive)} masked out"]
    if patches.grounded is not None:
        parts.append(f"{len(patches.grounded)} grounded on images of this site")
    if patches.dead:
        parts.append(f"{len(patches.dead)} dead: far from every patch of this site's images")
    parts.append(f"{twins} nearly equal to another one of their class")
    return ", ".join(parts) + "."


def render_unit_card(unit: Unit, patches: Patches) -> Html:
    """One prototype: its patch, its weight, and what is odd about it."""
    patch = patches.get(unit.number)
    name = f"prototype {unit.number}"
    if patch is None:
        view = el("div", patches.explain_missing(unit.number), class_="blank")
    else:
        label = f"{name} of class {unit.class_name}: its training patch in {patch.image}"
        view = draw_patch(patch, label)
    facts = []
    if unit.weight is not None:
        facts.append(f"weight to its class {format_number(unit.weight)}")
    if unit.also is not None:
        facts.append(f"also speaks for {unit.also[0]}, {format_number(unit.also[1])}")
    if patch is not None and patch.distance is not None:
        facts.append(f"squared distance {format_number(patch.distance)}")
    tags = [el("span", tag, class_="tag bad") for tag in _list_tags(unit, patches)]
    lines = [el("small", fact) for fact in facts]
    return el(
        "li",
        view,
        el("h3", name),
        *lines,
        el("div", *tags, class_="tags"),
        class_=None if unit.alive else "masked",
    )


def _list_tags(unit: Unit, patches: Patches) -> list[str]:
    tags = []
    if not unit.alive:
        tags.append("masked out")
    if unit.number in patches.dead:
        tags.append("dead: far from every patch")
    elif patches.grounded is not None and unit.number not in patches.grounded:
        tags.append("not grounded here")
    if unit.twins:
        tags.append("same as " + ", ".join(map(str, unit.twins)))
    return tags
