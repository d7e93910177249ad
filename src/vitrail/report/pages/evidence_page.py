"""The page that answers "why this prediction": parts, maps and numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from vitrail.data.decoding.resize import make_resize_transform
from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.document_page import render_page
from vitrail.report.explain_images import Explainer, ImageExplanation
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.pages.page_elements import (
    Floats4,
    draw_bar,
    draw_box,
    draw_heat,
    draw_photo,
    draw_shade,
    format_number,
    image_from_array,
    render_rows,
    store_photo,
)
from vitrail.report.training_patches import Patch, Patches

_PLACES = 3
_THUMBNAIL = 176  # pixels of a training image, for a figure of 132 to 160
_LISTED = 5  # classes whose probability is shown
_HEADS = ("part of this image", "where it is seen", "learned from", "part",
          "similarity \N{MULTIPLICATION SIGN} weight = contribution")  # fmt: skip


def render_evidence_page(
    explainer: Explainer,
    explanations: Sequence[ImageExplanation],
    broken: Sequence[tuple[str, str]] = (),
) -> str:
    """One HTML document for one image or many; `broken` are names and reasons."""
    lead = [describe_model(explainer)]
    body: list[Html | None] = []
    if explainer.has_parts:
        lead.append(
            el(
                "p",
                "Each row is a part that the model knows, the place where this image comes closest "
                "to it, and what that adds to the class. The rows add up to the logit.",
            )
        )
    else:
        body.append(
            el(
                "p",
                "This model has no parts that its logits are made of. Each class shows a Grad-CAM "
                "map instead: where the last stage speaks for it. The map does not add up to the "
                "logit.",
                class_="note",
            )
        )
    if len(explanations) > 1:
        body.append(_render_index(explanations))
    if broken:
        rows = [el("li", f"{name}: {why}") for name, why in broken]
        body.append(el("div", "Could not be read:", el("ul", *rows), class_="note"))
    patches = explainer.patches if explainer.has_parts else Patches("")
    body += _store_training_photos(explanations, patches)
    body += [_render_image(explanation, at, patches) for at, explanation in enumerate(explanations)]
    many = f"Why these {len(explanations)} predictions"
    return render_page("Why this prediction" if len(explanations) == 1 else many, join(lead), body)


def describe_model(explainer: Explainer) -> Html:
    """Whose model this is, of which method and round."""
    card = explainer.run.card
    text = f"{explainer.title} · {card['method']} on {card['backbone']}"
    return el("p", f"{text} · round {explainer.run.round}", class_="soft")


def _render_index(explanations: Sequence[ImageExplanation]) -> Html:
    rows = []
    for at, explanation in enumerate(explanations):
        share = 100 * explanation.probabilities[explanation.predicted]
        answer = f"{explanation.classes[explanation.predicted]}, {share:.0f} %"
        link = el("a", explanation.name, href=f"#i{at}")
        rows.append(el("li", link, el("span", answer)))
    return el("section", el("ul", *rows, class_="index"))


def _store_training_photos(
    explanations: Sequence[ImageExplanation], patches: Patches
) -> list[Html]:
    """The training images that some row refers to, each once."""
    units = {
        row.unit
        for explanation in explanations
        for c in explanation.evidence
        for row in c.contributions
    }
    return store_photos([patch for unit in units if (patch := patches.get(unit)) is not None])


def store_photos(patches: Sequence[Patch]) -> list[Html]:
    """The images of some patches, each once and no larger than it is shown."""
    stored = []
    for row, pixels in sorted({patch.row: patch.pixels for patch in patches}.items()):
        small = image_from_array(pixels)
        small.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.LANCZOS)
        stored.append(store_photo(f"t{row}", small, (pixels.shape[0], pixels.shape[1])))
    return stored


def draw_patch(patch: Patch, label: str) -> Html:
    """A training patch in its stored image."""
    size = (patch.pixels.shape[0], patch.pixels.shape[1])
    marks = join([draw_shade(size, patch.box), draw_box(patch.box)])
    return draw_photo(f"t{patch.row}", size, label, marks)


def compute_extent(explanation: ImageExplanation) -> Floats4:
    """The rectangle of the original that the model saw; it may reach beyond the edges."""
    height, width = explanation.image.size
    side = len(explanation.image.square)
    x0, y0, x1, y1 = make_resize_transform(width, height, side, explanation.resize).to_original(
        [0, 0, side, side]
    )
    return float(x0), float(y0), float(x1), float(y1)


def _render_image(explanation: ImageExplanation, at: int, patches: Patches) -> Html:
    name = f"p{at}"
    size = explanation.image.size
    first = explanation.evidence[0]
    speaking = [row for row in first.contributions if row.box is not None and row.contribution > 0]
    shade = draw_shade(size, compute_extent(explanation))
    marks = join([shade, *(draw_box(row.box) for row in speaking if row.box is not None)])
    label = f"{explanation.name} with a box around each part that speaks for {first.name}"
    summary = el(
        "div",
        el(
            "div",
            draw_photo(name, size, label, marks),
            el("small", f"{explanation.name}, {size[1]} \N{MULTIPLICATION SIGN} {size[0]} pixels"),
        ),
        el(
            "div",
            el("span", "predicted", class_="soft"),
            el("p", first.name, class_="answer"),
            _render_chances(explanation),
        ),
        class_="summary",
    )
    blocks = [_render_class(explanation, c, name, patches) for c in explanation.evidence]
    stored = store_photo(name, explanation.image.shown, size)
    return el("section", stored, summary, *blocks, id=f"i{at}")


def _render_chances(explanation: ImageExplanation) -> Html:
    ranked = sorted(range(len(explanation.classes)), key=lambda c: -explanation.probabilities[c])
    rows: list[Html] = []
    for label in ranked[:_LISTED]:
        share = 100 * explanation.probabilities[label]
        bar = el("span", el("i", style=f"width:{share:.1f}%"), class_="track", aria_hidden="true")
        rows += [
            el("dt", explanation.classes[label]),
            el("dd", bar),
            el("dd", f"{share:.1f} %"),
        ]
    left = len(explanation.classes) - _LISTED
    noun = "class" if left == 1 else "classes"
    more = el("small", f"{left} more {noun}") if left > 0 else None
    return join([el("dl", *rows, class_="chances"), more])


def _render_class(
    explanation: ImageExplanation, evidence: ClassEvidence, name: str, patches: Patches
) -> Html:
    shown = round_contributions(evidence)
    largest = max((abs(value) for value in shown[:-1]), default=0.0)
    if not explanation.has_parts:
        map_ = evidence.contributions[0].map
        drawn = None if map_ is None else draw_heat(map_, compute_extent(explanation))
        label = f"Grad-CAM map for {evidence.name}"
        photo = draw_photo(name, explanation.image.size, label, heat=drawn)
        logit = el("p", f"logit {format_number(evidence.logit)}")
        return join([el("h3", evidence.name), logit, el("div", photo, style="max-width:280px")])
    rows = [
        _render_row(explanation, row, value, largest, name, patches)
        for row, value in zip(evidence.contributions, shown)
        if row.part != OTHER
    ]
    total = el(
        "tr",
        el("th", explanation.title_sum(evidence), colspan=4, scope="row"),
        el("td", _render_terms("", sum(shown)), class_="formula"),
        class_="last",
    )
    title = explanation.title_class(evidence)
    table = render_rows(_HEADS, [*rows, _render_other(evidence, shown[-1]), total], title, "")
    return join([el("h3", title), table])


def round_contributions(evidence: ClassEvidence) -> list[float]:
    """The contributions as they are printed; the last row takes up what rounding left over."""
    values = [round(row.contribution, _PLACES) for row in evidence.contributions[:-1]]
    return [*values, round(round(evidence.logit, _PLACES) - sum(values), _PLACES)]


def _render_row(
    explanation: ImageExplanation,
    row: Contribution,
    value: float,
    largest: float,
    name: str,
    patches: Patches,
) -> Html:
    size = explanation.image.size
    if row.box is None:
        why = "has no place" if row.square is None else "lies in the border around the image"
        place_cell = el("td", why, class_="see none")
    else:
        photo = draw_photo(name, size, _describe_place(row), draw_box(row.box))
        place_cell = el("td", photo, class_="see")
    if row.map is None:
        map_cell = el("td", "has no map", class_="see none")
    else:
        heat = draw_heat(row.map, compute_extent(explanation))
        photo = draw_photo(name, size, f"activation of {row.part}", heat=heat)
        map_cell = el("td", photo, class_="see")
    terms = ""
    if row.score is not None and row.weight is not None:
        terms = f"{format_number(row.score)} \N{MULTIPLICATION SIGN} {format_number(row.weight)} ="
    return el(
        "tr",
        place_cell,
        map_cell,
        _render_training_patch(row, patches),
        el("td", row.part, class_="what"),
        el("td", _render_terms(terms, value), draw_bar(value, largest), class_="formula"),
    )


def _render_terms(terms: str, value: float) -> Html:
    return el("div", el("span", terms), el("b", format_number(value, _PLACES)), class_="terms")


def _describe_place(row: Contribution) -> str:
    x0, y0, x1, y1 = row.box or (0, 0, 0, 0)
    return f"{row.part}: pixels {x0} to {x1} across, {y0} to {y1} down"


def _render_training_patch(row: Contribution, patches: Patches) -> Html:
    """The training patch, or the sentence that says why it is not there."""
    unit = None if row.map is None else row.unit
    patch = patches.get(unit)
    if patch is None:
        return el("td", patches.explain_missing(unit), class_="see none")
    drawn = draw_patch(patch, f"the training patch of {row.part}, in {patch.image}")
    return el("td", drawn, class_="see")


def _render_other(evidence: ClassEvidence, value: float) -> Html:
    count = evidence.contributions[-1].units
    noun = "part" if count == 1 else "parts"
    label = format_html("other: {} more {}, summed", count, noun)
    return el(
        "tr",
        el("th", label, colspan=4, scope="row"),
        el("td", _render_terms("", value), class_="formula"),
        class_="other",
    )
