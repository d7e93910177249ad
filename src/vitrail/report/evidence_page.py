"""The page that answers "why this prediction": parts, maps and numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt
from PIL import Image

from vitrail.data.resize import frame
from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.evidence_html import (
    Floats4,
    bar,
    drawing,
    framed,
    heat,
    number,
    page,
    shaded,
    store,
)
from vitrail.report.explanation import Explained, Explainer
from vitrail.report.patches import Patch, Patches

_PLACES = 3
_THUMBNAIL = 176  # pixels of a training image, for a figure of 132 to 160
_LISTED = 5  # classes whose probability is shown


def evidence_page(
    explainer: Explainer, found: Sequence[Explained], broken: Sequence[tuple[str, str]] = ()
) -> str:
    """One HTML document for one image or many; `broken` are names and reasons."""
    card = explainer.run.card
    lead = (
        f'<p class="soft">{escape(explainer.title)} · {escape(card["method"])} on '
        f"{escape(card['backbone'])} · round {explainer.run.round}</p>"
    )
    if explainer.parts:
        lead += (
            "<p>Each row is a part that the model knows, the place where this image comes closest "
            "to it, and what that adds to the class. The rows add up to the logit.</p>"
        )
    body = []
    if not explainer.parts:
        body.append(
            '<p class="note">This model has no parts that its logits are made of. Each class '
            "shows a Grad-CAM map instead: where the last stage speaks for it. The map does not "
            "add up to the logit.</p>"
        )
    if len(found) > 1:
        body.append(_index(found))
    if broken:
        rows = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in broken)
        body.append(f'<div class="note">Could not be read:<ul>{rows}</ul></div>')
    patches = explainer.patches if explainer.parts else Patches("")
    body += _training_photos(found, patches)
    body += [_section(one, at, patches) for at, one in enumerate(found)]
    title = "Why this prediction" if len(found) == 1 else f"Why these {len(found)} predictions"
    return page(title, lead, body)


def _index(found: Sequence[Explained]) -> str:
    rows = [
        f'<li><a href="#i{at}">{escape(one.name)}</a><span>{escape(one.classes[one.predicted])}, '
        f"{100 * one.probabilities[one.predicted]:.0f} %</span></li>"
        for at, one in enumerate(found)
    ]
    return f'<section><ul class="index">{"".join(rows)}</ul></section>'


def _training_photos(found: Sequence[Explained], patches: Patches) -> list[str]:
    """The training images that some row refers to, each once."""
    units = {row.unit for one in found for c in one.evidence for row in c.contributions}
    return photos([patch for unit in units if (patch := patches.get(unit)) is not None])


def photos(patches: Sequence[Patch]) -> list[str]:
    """The images of some patches, each once and no larger than it is shown."""
    found = []
    for row, pixels in sorted({patch.row: patch.pixels for patch in patches}.items()):
        small = picture(pixels)
        small.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.LANCZOS)
        found.append(store(f"t{row}", small, (pixels.shape[0], pixels.shape[1])))
    return found


def picture(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    """An image [H, W, C] for the eye."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def extent(one: Explained) -> Floats4:
    """The rectangle of the original that the model saw; it may reach beyond the edges."""
    height, width = one.image.size
    side = len(one.image.square)
    x0, y0, x1, y1 = frame(width, height, side, one.resize).to_original([0, 0, side, side])
    return float(x0), float(y0), float(x1), float(y1)


def _section(one: Explained, at: int, patches: Patches) -> str:
    name = f"p{at}"
    height, width = one.image.size
    first = one.evidence[0]
    speaking = [row for row in first.contributions if row.box is not None and row.contribution > 0]
    marks = shaded(one.image.size, extent(one)) + "".join(
        framed(row.box) for row in speaking if row.box is not None
    )
    what = f"{one.name} with a box around each part that speaks for {first.name}"
    blocks = "".join(_class(one, c, name, patches) for c in one.evidence)
    return (
        f'<section id="i{at}">{store(name, one.image.shown, one.image.size)}'
        f'<div class="summary"><div>{drawing(name, one.image.size, what, marks)}'
        f"<small>{escape(one.name)}, {width} &times; {height} pixels</small></div>"
        f'<div><span class="soft">predicted</span><p class="answer">{escape(first.name)}</p>'
        f"{_chances(one)}</div></div>{blocks}</section>"
    )


def _chances(one: Explained) -> str:
    ranked = sorted(range(len(one.classes)), key=lambda c: -one.probabilities[c])
    rows = []
    for label in ranked[:_LISTED]:
        share = 100 * one.probabilities[label]
        rows.append(
            f'<dt>{escape(one.classes[label])}</dt><div class="track" aria-hidden="true">'
            f'<i style="width:{share:.1f}%"></i></div><dd>{share:.1f} %</dd>'
        )
    left = len(one.classes) - _LISTED
    noun = "class" if left == 1 else "classes"
    more = f"<small>{left} more {noun}</small>" if left > 0 else ""
    return f'<dl class="chances">{"".join(rows)}</dl>{more}'


def _class(one: Explained, found: ClassEvidence, name: str, patches: Patches) -> str:
    shown = rounded(found)
    largest = max((abs(value) for value in shown[:-1]), default=0.0)
    if not one.parts:
        map_ = found.contributions[0].map
        drawn = "" if map_ is None else heat(map_, extent(one))
        label = f"Grad-CAM map for {found.name}"
        return (
            f"<h3>{escape(found.name)}</h3><p>logit {number(found.logit)}</p>"
            f'<div style="max-width:280px">{drawing(name, one.image.size, label, heat=drawn)}</div>'
        )
    rows = [
        _row(one, row, value, largest, name, patches)
        for row, value in zip(found.contributions, shown)
        if row.part != OTHER
    ]
    return (
        f"<h3>What speaks for {escape(found.name)}, and against it</h3>"
        '<div class="wide"><table><thead><tr><th>part of this image</th><th>where it is seen</th>'
        "<th>learned from</th><th>part</th>"
        "<th>similarity &times; weight = contribution</th></tr></thead>"
        f"<tbody>{''.join(rows)}{_other(found, shown[-1])}</tbody>"
        '<tfoot><tr><td colspan="4">Sum, which is the logit</td><td class="sum">'
        f'<div class="formula"><span></span><b>{number(sum(shown), _PLACES)}</b></div></td></tr>'
        "</tfoot></table></div>"
    )


def rounded(found: ClassEvidence) -> list[float]:
    """The contributions as they are printed; the last row takes up what rounding left over."""
    values = [round(row.contribution, _PLACES) for row in found.contributions[:-1]]
    return [*values, round(round(found.logit, _PLACES) - sum(values), _PLACES)]


def _row(
    one: Explained, row: Contribution, value: float, largest: float, name: str, patches: Patches
) -> str:
    size = one.image.size
    if row.box is None:
        why = "has no place" if row.square is None else "lies in the border around the image"
        seen = f'<td class="see none">{why}</td>'
    else:
        seen = f'<td class="see">{drawing(name, size, _where(row), framed(row.box))}</td>'
    if row.map is None:
        drawn = '<td class="see none">has no map</td>'
    else:
        label = f"activation of {row.part}"
        drawn = (
            f'<td class="see">{drawing(name, size, label, heat=heat(row.map, extent(one)))}</td>'
        )
    formula = f"<b>{number(value, _PLACES)}</b>"
    if row.score is not None and row.weight is not None:
        terms = f"{number(row.score, 3)} &times; {number(row.weight, 3)} ="
        formula = f"<span>{terms}</span>{formula}"
    return (
        f'<tr>{seen}{drawn}{_learned(row, patches)}<td class="what">{escape(row.part)}</td>'
        f'<td class="sum"><div class="formula">{formula}</div>{bar(value, largest)}</td></tr>'
    )


def _where(row: Contribution) -> str:
    x0, y0, x1, y1 = row.box or (0, 0, 0, 0)
    return f"{row.part}: pixels {x0} to {x1} across, {y0} to {y1} down"


def _learned(row: Contribution, patches: Patches) -> str:
    """The training patch, or the sentence that says why it is not there."""
    unit = None if row.map is None else row.unit
    patch = patches.get(unit)
    if patch is None:
        return f'<td class="see none">{escape(patches.sentence(unit))}</td>'
    size = (patch.pixels.shape[0], patch.pixels.shape[1])
    label = f"the training patch of {row.part}, in {patch.image}"
    marks = shaded(size, patch.box) + framed(patch.box)
    return f'<td class="see">{drawing(f"t{patch.row}", size, label, marks)}</td>'


def _other(found: ClassEvidence, value: float) -> str:
    count = found.contributions[-1].units
    noun = "part" if count == 1 else "parts"
    return (
        f'<tr class="other"><td colspan="4">other: {count} more {noun}, summed</td>'
        f'<td class="sum"><div class="formula"><span></span><b>{number(value, _PLACES)}</b></div>'
        "</td></tr>"
    )
