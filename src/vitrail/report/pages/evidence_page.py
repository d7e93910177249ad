"""The page that answers "why this prediction": parts, maps and numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt
from PIL import Image

from vitrail.data.decoding.resize import make_resize_transform
from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.explain_images import Explainer, ImageExplanation
from vitrail.report.pages.page_elements import (
    Floats4,
    draw_bar,
    draw_box,
    draw_heat,
    draw_photo,
    draw_shade,
    format_number,
    render_page,
    store_photo,
)
from vitrail.report.training_patches import Patch, Patches

_PLACES = 3
_THUMBNAIL = 176  # pixels of a training image, for a figure of 132 to 160
_LISTED = 5  # classes whose probability is shown


def render_evidence_page(
    explainer: Explainer,
    explanations: Sequence[ImageExplanation],
    broken: Sequence[tuple[str, str]] = (),
) -> str:
    """One HTML document for one image or many; `broken` are names and reasons."""
    card = explainer.run.card
    lead = (
        f'<p class="soft">{escape(explainer.title)} · {escape(card["method"])} on '
        f"{escape(card['backbone'])} · round {explainer.run.round}</p>"
    )
    if explainer.has_parts:
        lead += (
            "<p>Each row is a part that the model knows, the place where this image comes closest "
            "to it, and what that adds to the class. The rows add up to the logit.</p>"
        )
    body = []
    if not explainer.has_parts:
        body.append(
            '<p class="note">This model has no parts that its logits are made of. Each class '
            "shows a Grad-CAM map instead: where the last stage speaks for it. The map does not "
            "add up to the logit.</p>"
        )
    if len(explanations) > 1:
        body.append(_render_index(explanations))
    if broken:
        rows = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in broken)
        body.append(f'<div class="note">Could not be read:<ul>{rows}</ul></div>')
    patches = explainer.patches if explainer.has_parts else Patches("")
    body += _store_training_photos(explanations, patches)
    body += [_render_image(explanation, at, patches) for at, explanation in enumerate(explanations)]
    title = (
        "Why this prediction"
        if len(explanations) == 1
        else f"Why these {len(explanations)} predictions"
    )
    return render_page(title, lead, body)


def _render_index(explanations: Sequence[ImageExplanation]) -> str:
    rows = [
        f'<li><a href="#i{at}">{escape(explanation.name)}</a>'
        f"<span>{escape(explanation.classes[explanation.predicted])}, "
        f"{100 * explanation.probabilities[explanation.predicted]:.0f} %</span></li>"
        for at, explanation in enumerate(explanations)
    ]
    return f'<section><ul class="index">{"".join(rows)}</ul></section>'


def _store_training_photos(explanations: Sequence[ImageExplanation], patches: Patches) -> list[str]:
    """The training images that some row refers to, each once."""
    units = {
        row.unit
        for explanation in explanations
        for c in explanation.evidence
        for row in c.contributions
    }
    return store_photos([patch for unit in units if (patch := patches.get(unit)) is not None])


def store_photos(patches: Sequence[Patch]) -> list[str]:
    """The images of some patches, each once and no larger than it is shown."""
    stored = []
    for row, pixels in sorted({patch.row: patch.pixels for patch in patches}.items()):
        small = image_from_array(pixels)
        small.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.LANCZOS)
        stored.append(store_photo(f"t{row}", small, (pixels.shape[0], pixels.shape[1])))
    return stored


def image_from_array(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    """An image [H, W, C] for the eye."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def compute_extent(explanation: ImageExplanation) -> Floats4:
    """The rectangle of the original that the model saw; it may reach beyond the edges."""
    height, width = explanation.image.size
    side = len(explanation.image.square)
    x0, y0, x1, y1 = make_resize_transform(width, height, side, explanation.resize).to_original(
        [0, 0, side, side]
    )
    return float(x0), float(y0), float(x1), float(y1)


def _render_image(explanation: ImageExplanation, at: int, patches: Patches) -> str:
    name = f"p{at}"
    height, width = explanation.image.size
    first = explanation.evidence[0]
    speaking = [row for row in first.contributions if row.box is not None and row.contribution > 0]
    marks = draw_shade(explanation.image.size, compute_extent(explanation)) + "".join(
        draw_box(row.box) for row in speaking if row.box is not None
    )
    label = f"{explanation.name} with a box around each part that speaks for {first.name}"
    blocks = "".join(_render_class(explanation, c, name, patches) for c in explanation.evidence)
    return (
        f'<section id="i{at}">{store_photo(name, explanation.image.shown, explanation.image.size)}'
        f'<div class="summary"><div>{draw_photo(name, explanation.image.size, label, marks)}'
        f"<small>{escape(explanation.name)}, {width} &times; {height} pixels</small></div>"
        f'<div><span class="soft">predicted</span><p class="answer">{escape(first.name)}</p>'
        f"{_render_chances(explanation)}</div></div>{blocks}</section>"
    )


def _render_chances(explanation: ImageExplanation) -> str:
    ranked = sorted(range(len(explanation.classes)), key=lambda c: -explanation.probabilities[c])
    rows = []
    for label in ranked[:_LISTED]:
        share = 100 * explanation.probabilities[label]
        rows.append(
            f'<dt>{escape(explanation.classes[label])}</dt><div class="track" aria-hidden="true">'
            f'<i style="width:{share:.1f}%"></i></div><dd>{share:.1f} %</dd>'
        )
    left = len(explanation.classes) - _LISTED
    noun = "class" if left == 1 else "classes"
    more = f"<small>{left} more {noun}</small>" if left > 0 else ""
    return f'<dl class="chances">{"".join(rows)}</dl>{more}'


def _render_class(
    explanation: ImageExplanation, evidence: ClassEvidence, name: str, patches: Patches
) -> str:
    shown = round_contributions(evidence)
    largest = max((abs(value) for value in shown[:-1]), default=0.0)
    if not explanation.has_parts:
        map_ = evidence.contributions[0].map
        drawn = "" if map_ is None else draw_heat(map_, compute_extent(explanation))
        label = f"Grad-CAM map for {evidence.name}"
        photo = draw_photo(name, explanation.image.size, label, heat=drawn)
        return (
            f"<h3>{escape(evidence.name)}</h3><p>logit {format_number(evidence.logit)}</p>"
            f'<div style="max-width:280px">{photo}</div>'
        )
    rows = [
        _render_row(explanation, row, value, largest, name, patches)
        for row, value in zip(evidence.contributions, shown)
        if row.part != OTHER
    ]
    return (
        f"<h3>What speaks for {escape(evidence.name)}, and against it</h3>"
        '<div class="wide"><table><thead><tr><th>part of this image</th><th>where it is seen</th>'
        "<th>learned from</th><th>part</th>"
        "<th>similarity &times; weight = contribution</th></tr></thead>"
        f"<tbody>{''.join(rows)}{_render_other(evidence, shown[-1])}</tbody>"
        '<tfoot><tr><td colspan="4">Sum, which is the logit</td><td class="sum">'
        f'<div class="formula"><span></span><b>{format_number(sum(shown), _PLACES)}</b></div>'
        "</td></tr></tfoot></table></div>"
    )


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
) -> str:
    size = explanation.image.size
    if row.box is None:
        why = "has no place" if row.square is None else "lies in the border around the image"
        place_cell = f'<td class="see none">{why}</td>'
    else:
        photo = draw_photo(name, size, _describe_place(row), draw_box(row.box))
        place_cell = f'<td class="see">{photo}</td>'
    if row.map is None:
        map_cell = '<td class="see none">has no map</td>'
    else:
        label = f"activation of {row.part}"
        photo = draw_photo(name, size, label, heat=draw_heat(row.map, compute_extent(explanation)))
        map_cell = f'<td class="see">{photo}</td>'
    formula = f"<b>{format_number(value, _PLACES)}</b>"
    if row.score is not None and row.weight is not None:
        terms = f"{format_number(row.score, 3)} &times; {format_number(row.weight, 3)} ="
        formula = f"<span>{terms}</span>{formula}"
    return (
        f"<tr>{place_cell}{map_cell}{_render_training_patch(row, patches)}"
        f'<td class="what">{escape(row.part)}</td>'
        f'<td class="sum"><div class="formula">{formula}</div>{draw_bar(value, largest)}</td></tr>'
    )


def _describe_place(row: Contribution) -> str:
    x0, y0, x1, y1 = row.box or (0, 0, 0, 0)
    return f"{row.part}: pixels {x0} to {x1} across, {y0} to {y1} down"


def _render_training_patch(row: Contribution, patches: Patches) -> str:
    """The training patch, or the sentence that says why it is not there."""
    unit = None if row.map is None else row.unit
    patch = patches.get(unit)
    if patch is None:
        return f'<td class="see none">{escape(patches.explain_missing(unit))}</td>'
    size = (patch.pixels.shape[0], patch.pixels.shape[1])
    label = f"the training patch of {row.part}, in {patch.image}"
    marks = draw_shade(size, patch.box) + draw_box(patch.box)
    return f'<td class="see">{draw_photo(f"t{patch.row}", size, label, marks)}</td>'


def _render_other(evidence: ClassEvidence, value: float) -> str:
    count = evidence.contributions[-1].units
    noun = "part" if count == 1 else "parts"
    return (
        f'<tr class="other"><td colspan="4">other: {count} more {noun}, summed</td>'
        '<td class="sum"><div class="formula"><span></span>'
        f"<b>{format_number(value, _PLACES)}</b></div></td></tr>"
    )
