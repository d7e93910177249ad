"""The evidence for one image as a picture, for slides and papers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.charts.drawing import Drawing, Photo, Point, Shape, Text, box, line
from vitrail.report.charts.raster import render_png
from vitrail.report.charts.scale import shorten_text
from vitrail.report.explain_images import Explainer, ImageExplanation
from vitrail.report.pages.evidence_page import compute_extent, round_contributions
from vitrail.report.pages.page_elements import color_heat, format_number, image_from_array
from vitrail.report.training_patches import Patches

_WIDE, _ROW, _SIDE = 1060.0, 128.0, 116.0
TIMES = "\N{MULTIPLICATION SIGN}"
_COLUMNS = ("part of this image", "where it is seen", "learned from")


@dataclass
class Sheet:
    """Shapes under each other; `y` is where the next ones begin."""

    y: float = 16.0
    shapes: list[Shape] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, role: str = "ink", size: float = 13.0,
              right: bool = False, bold: bool = False, room: float = 620.0) -> None:  # fmt: skip
        """A line of words, cut to a width."""
        words = shorten_text(text, room, size) if text else ""
        self.shapes.append(Text((x, y), words, role, size, "end" if right else "start", bold))


def draw_evidence(explainer: Explainer, explanation: ImageExplanation) -> bytes:
    """One image, the classes asked for, their parts and the sums, as PNG bytes."""
    patches = explainer.patches if explanation.has_parts else Patches("")
    sheet = Sheet()
    _draw_summary(sheet, explainer, explanation)
    for evidence in explanation.evidence:
        _draw_class(sheet, explanation, evidence, patches)
    title = f"Evidence for {explanation.evidence[0].name}"
    return render_png(Drawing(_WIDE, sheet.y + 12, title, "", sheet.shapes))


def fit_size(size: tuple[int, int], side: float) -> tuple[float, float]:
    """The width and height of an image of (height, width) in a square."""
    height, width = size
    scale = side / max(height, width, 1)
    return width * scale, height * scale


def frame_photo(
    photo: Image.Image, size: tuple[int, int], boxes: Sequence[Sequence[float]]
) -> Image.Image:
    """A photograph with boxes, in the coordinates of an original of (height, width)."""
    height, width = size
    large = photo.convert("RGB").resize(
        (max(1, round(480 * width / max(size))), max(1, round(480 * height / max(size)))),
        Image.Resampling.LANCZOS if max(photo.size) >= 128 else Image.Resampling.NEAREST,
    )
    pen, scale = ImageDraw.Draw(large), large.width / max(1, width)
    for x0, y0, x1, y1 in boxes:
        place = [x0 * scale, y0 * scale, max(x0, x1) * scale, max(y0, y1) * scale]
        pen.rectangle(place, outline="black", width=11)
        pen.rectangle(place, outline="#f0e442", width=5)
    return large


def _draw_summary(sheet: Sheet, explainer: Explainer, explanation: ImageExplanation) -> None:
    top, left = sheet.y, 260.0
    boxes = [
        row.box
        for row in explanation.evidence[0].contributions
        if row.box is not None and row.contribution > 0
    ]
    width, height = fit_size(explanation.image.size, 220)
    photo = frame_photo(_shade_photo(explanation), explanation.image.size, boxes)
    sheet.shapes.append(Photo((16, top), width, height, photo, "the image"))
    sheet.write(left, top + 12, "predicted", "soft", 13)
    sheet.write(left, top + 40, explanation.evidence[0].name, size=24, bold=True)
    shares = explanation.probabilities
    ranked = sorted(range(len(explanation.classes)), key=lambda c: -shares[c])[:4]
    for at, label in enumerate(ranked):
        y = top + 80 + 26 * at
        sheet.write(left, y, explanation.classes[label], room=300)
        sheet.shapes.append(box(left + 320, y - 6, 340, 12, "quiet"))
        sheet.shapes.append(box(left + 320, y - 6, 340 * shares[label], 12, "for"))
        sheet.write(_WIDE - 40, y, f"{100 * shares[label]:.1f} %", right=True)
    card = explainer.run.card
    model = f"{explainer.title}, {card['method']} on {card['backbone']}"
    words = f"{explanation.name}. {model}, round {explainer.run.round}"
    sheet.write(left, top + 208, words, "soft", 12, room=_WIDE - left - 40)
    sheet.y = top + 244


def _shade_photo(explanation: ImageExplanation) -> Image.Image:
    """The original; what the model did not see is in shadow."""
    photo = explanation.image.shown.convert("RGB")
    height, width = explanation.image.size
    across, down = photo.width / max(1, width), photo.height / max(1, height)
    x0, y0, x1, y1 = compute_extent(explanation)
    clear = (max(0, round(x0 * across)), max(0, round(y0 * down)),
             min(photo.width, round(x1 * across)), min(photo.height, round(y1 * down)))  # fmt: skip
    shaded = Image.eval(photo, lambda value: value // 2)
    if clear[2] > clear[0] and clear[3] > clear[1]:
        shaded.paste(photo.crop(clear), clear[:2])
    return shaded


def _draw_class(
    sheet: Sheet, explanation: ImageExplanation, evidence: ClassEvidence, patches: Patches
) -> None:
    """A class: title, one row for each part, the sum."""
    sheet.y += 12
    if not explanation.has_parts:
        sheet.write(16, sheet.y, f"Grad-CAM for {evidence.name}", size=17, bold=True)
        why = "This model has no parts. The map does not add up to the logit."
        sheet.write(16, sheet.y + 24, why, "soft")
        _draw_map(sheet, (16, sheet.y + 42), explanation, evidence.contributions[0], 200)
        sheet.y += 252
        _draw_total(sheet, evidence.logit, "logit")
        return
    sheet.write(16, sheet.y, explanation.title_class(evidence), size=17, bold=True, room=_WIDE - 40)
    for at, name in enumerate(_COLUMNS):
        sheet.write(16 + 132 * at, sheet.y + 28, name, "soft", 12)
    sheet.y += 40
    shown = round_contributions(evidence)
    largest = max((abs(value) for value in shown[:-1]), default=0.0) or 1.0
    for row, value in zip(evidence.contributions[:-1], shown):
        _draw_part(sheet, explanation, row, patches)
        _draw_formula(sheet, row, value, largest)
        sheet.y += _ROW
    rest = evidence.contributions[-1]
    if rest.part == OTHER:
        sheet.write(16, sheet.y + 8, f"other: {rest.units} more parts, summed", "soft")
        sheet.write(_WIDE - 40, sheet.y + 8, format_number(shown[-1]), "soft", right=True)
        sheet.y += 22
    _draw_total(sheet, sum(shown), explanation.title_sum(evidence))


def _draw_part(
    sheet: Sheet, explanation: ImageExplanation, row: Contribution, patches: Patches
) -> None:
    size = explanation.image.size
    width, height = fit_size(size, _SIDE)
    boxes = [] if row.box is None else [row.box]
    photo = frame_photo(_shade_photo(explanation), size, boxes)
    sheet.shapes.append(Photo((16, sheet.y), width, height, photo, row.part))
    _draw_map(sheet, (148, sheet.y), explanation, row, _SIDE)
    unit = None if row.map is None else row.unit
    patch = patches.get(unit)
    if patch is None:
        sheet.shapes.append(box(280, sheet.y, _SIDE, _SIDE, "quiet"))
        words = textwrap.wrap(patches.explain_missing(unit), 18)[:6]
        for at, text in enumerate(words):
            place: Point = (280 + _SIDE / 2, sheet.y + 20 + 15 * at)
            sheet.shapes.append(Text(place, text, "soft", 10, "middle"))
        return
    learned = frame_photo(image_from_array(patch.pixels), patch.pixels.shape[:2], [patch.box])
    sheet.shapes.append(Photo((280, sheet.y), _SIDE, _SIDE, learned, "learned from"))


def _draw_map(
    sheet: Sheet, at: Point, explanation: ImageExplanation, row: Contribution, side: float
) -> None:
    """The activation map over a gray photograph."""
    size = explanation.image.size
    width, height = fit_size(size, side)
    gray = explanation.image.shown.convert("L").convert("RGB").resize((480, 480))
    if row.map is not None:
        across, down = 480 / max(1, size[1]), 480 / max(1, size[0])
        x0, y0, x1, y1 = compute_extent(explanation)
        heat = Image.fromarray(color_heat(row.map))
        large = (max(1, round((x1 - x0) * across)), max(1, round((y1 - y0) * down)))
        drawn = heat.resize(large, Image.Resampling.BILINEAR)
        gray.paste(drawn.convert("RGB"), (round(x0 * across), round(y0 * down)),
                   drawn.getchannel("A"))  # fmt: skip
    sheet.shapes.append(Photo(at, width, height, gray, "where it is seen"))


def _draw_formula(sheet: Sheet, row: Contribution, value: float, largest: float) -> None:
    """The name, the numbers, and a bar to the right or left."""
    left, right, y = 424.0, _WIDE - 40, sheet.y
    sheet.write(left, y + 30, row.part, size=14, room=right - left)
    if row.score is not None and row.weight is not None:
        terms = (
            f"similarity {format_number(row.score)} {TIMES} weight {format_number(row.weight)} ="
        )
        sheet.write(left, y + 58, terms, "soft")
    sheet.write(right, y + 58, format_number(value), size=15, right=True, bold=True)
    middle, half = (left + right) / 2, (right - left) / 2
    sheet.shapes.append(box(left, y + 78, right - left, 14, "quiet"))
    length = half * abs(value) / largest
    start = middle if value >= 0 else middle - length
    sheet.shapes.append(box(start, y + 78, length, 14, "for" if value >= 0 else "against"))
    sheet.shapes.append(line((middle, y + 76), (middle, y + 94), "soft"))


def _draw_total(sheet: Sheet, value: float, label: str) -> None:
    """A line, and the sum."""
    sheet.shapes.append(line((16, sheet.y), (_WIDE - 40, sheet.y), "ink", 1.6))
    sheet.write(16, sheet.y + 18, label, bold=True)
    sheet.write(_WIDE - 40, sheet.y + 18, format_number(value), size=16, right=True, bold=True)
    sheet.y += 44
