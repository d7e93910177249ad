"""An answer as files to keep: the evidence as CSV, what the model saw as PNG, both as SVG."""

from __future__ import annotations

import csv
import io

from PIL import Image

from vitrail.live.ask_page import draw_marks
from vitrail.live.question import LinkedQuestion
from vitrail.report.charts.drawing import FONT
from vitrail.report.charts.palette import get_light_color
from vitrail.report.charts.scale import format_percent, shorten_text
from vitrail.report.html import Html, el
from vitrail.report.pages.evidence_page import round_contributions
from vitrail.report.pages.page_elements import format_number, image_from_array, to_data_uri
from vitrail.runs.ask_model import Answer
from vitrail.runs.open_image import OpenedImage

_WIDTH, _SIDE, _EDGE, _ROW = 960, 380, 24, 30  # of the drawing, in its own units
_MIDDLE, _REACH = 755, 85  # where bars begin, and how far the longest one reaches


def write_evidence_csv(answer: Answer) -> str:
    """The evidence as a table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["class", "probability", "part", "score", "weight", "contribution", "box"])
    for entry in answer.evidence:
        share = answer.probabilities[entry.label]
        for row in entry.contributions:
            box = "" if row.box is None else " ".join(map(str, row.box))
            name = f"'{entry.name}" if entry.name[:1] in "=+-@" else entry.name
            writer.writerow([name, share, row.part, row.score, row.weight, row.contribution, box])
    return out.getvalue()


def write_seen_png(answer: Answer) -> bytes:
    """What the model saw, as PNG."""
    buffer = io.BytesIO()
    image_from_array(answer.seen).save(buffer, "PNG")
    return buffer.getvalue()


def write_shown_png(image: OpenedImage) -> bytes:
    """The image as the page shows it."""
    buffer = io.BytesIO()
    picture: Image.Image = image.shown
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def write_answer_svg(image: OpenedImage, asked: LinkedQuestion, answer: Answer) -> str:
    """The image with painted regions and parts, beside the evidence for the predicted class."""
    height, width = answer.size
    tall = _SIDE * height / width
    photo = el("image", width=width, height=height, preserveAspectRatio="none",
               href=to_data_uri(image.shown))  # fmt: skip
    place = {"x": _EDGE, "y": 76, "width": _SIDE, "height": f"{tall:.1f}"}
    title = f"{answer.predicted}, {format_percent(answer.confidence)} sure"
    rows = _draw_evidence(answer)
    bottom = max(76 + tall, 76 + _ROW * len(rows)) + _EDGE
    drawing = el(
        "svg",
        el("title", title),
        _make_style(),
        el("rect", width="100%", height="100%", fill=get_light_color("card")),
        el("text", shorten_text(title, _WIDTH - 2 * _EDGE, 24), x=_EDGE, y=38, class_="head"),
        el("text", answer.model, x=_EDGE, y=60, class_="soft"),
        el("svg", photo, draw_marks(answer, asked), viewBox=f"0 0 {width} {height}", **place),
        *rows,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {bottom:.0f}", width=_WIDTH,
        height=f"{bottom:.0f}", font_family=FONT, font_size=14,
    )  # fmt: skip
    return f"{drawing}\n"


def _draw_evidence(answer: Answer) -> list[Html]:
    """A bar for each part, and the sum; the numbers add up as they are printed."""
    entry = answer.evidence[0]
    values = round_contributions(entry) if answer.has_parts else [entry.logit]
    largest = max((abs(value) for value in values), default=0.0) or 1.0
    left, rows = _EDGE + _SIDE + _EDGE, []
    for at, (row, value) in enumerate(zip(entry.contributions, values, strict=True)):
        name = row.part.removesuffix(f" of class {entry.name}")
        words = shorten_text(f"{at + 1}  {name}", _MIDDLE - _REACH - left - 8, 14)
        length = _REACH * abs(value) / largest
        color = get_light_color("for" if value >= 0 else "against")
        rows.append(
            el(
                "g",
                el("text", words, x=left, y=_ROW * at + 92),
                el("rect", x=f"{_MIDDLE - (0 if value >= 0 else length):.1f}", y=_ROW * at + 79,
                   width=f"{length:.1f}", height=16, fill=color),
                el("text", format_number(value), x=_WIDTH - _EDGE, y=_ROW * at + 92,
                   text_anchor="end"),
            )
        )  # fmt: skip
    y = _ROW * len(rows) + 92
    total = el("text", format_number(round(sum(values), 3)), x=_WIDTH - _EDGE, y=y,
               text_anchor="end", font_weight=650)  # fmt: skip
    return [*rows, el("g", el("text", "sum, which is the logit", x=left, y=y), total)]


def _make_style() -> Html:
    """What the page's sheet says about marks, for a file that stands alone."""
    box, edge = get_light_color("mark"), "#000"
    return el(
        "style",
        f".box,.edge,.painted{{fill:none;vector-effect:non-scaling-stroke}}"
        f".edge{{stroke:{edge};stroke-width:4px}}.box{{stroke:{box};stroke-width:2px}}"
        f".painted{{fill:{get_light_color('against')};fill-opacity:.45;stroke:#fff}}"
        f".tag-text{{fill:#fff;stroke:#000;stroke-width:.18em;paint-order:stroke;font-weight:700}}"
        f".head{{font-size:24px;font-weight:650}}.soft{{fill:{get_light_color('soft')}}}",
    )
