"""The section "why": evidence for some right and wrong predictions, chosen by a stated rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.blocks import Block, Figure, MissingNote, ViewChoice
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_count, format_percent, format_value
from vitrail.report.explain_images import ImageExplanation
from vitrail.report.html import Html, el, format_html, join, to_html
from vitrail.report.html_table import Column, Table
from vitrail.report.pages.evidence_page import round_contributions
from vitrail.report.pages.page_elements import draw_bar, draw_empty_frame
from vitrail.report.photos import Photos
from vitrail.report.run_record import RunRecord
from vitrail.report.unit_patches import normalize_rows
from vitrail.report.viewer import ReportView
from vitrail.runs.open_image import OpenedImage

TIMES = "\N{MULTIPLICATION SIGN}"
_LOOKED = 240  # test images that are looked at, evenly over all of them
_CHUNK = 40
_AT = (0.9, 0.5, 0.1)  # of the images of a kind, ordered by the chance of the answer
_WORDS = ("sure", "typical", "hesitant")


@dataclass(frozen=True)
class TestPrediction:
    """What a model said of one test image."""

    row: int
    label: int
    predicted: int
    chance: float

    @property
    def is_right(self) -> bool:
        """Whether it was the true class."""
        return self.label == self.predicted


@torch.no_grad()
def predict_test_images(view: ReportView) -> list[TestPrediction]:
    """The predictions on up to 240 test images, evenly over all that may be looked at."""
    at = np.linspace(0, len(view.test) - 1, min(_LOOKED, len(view.test))).round().astype(np.int64)
    rows = view.test[at]
    predictions = []
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        logits = view.explainer.model.network(normalize_rows(view, chunk))
        chances, best = torch.softmax(logits.double(), 1).max(1)
        for row, chance, guess in zip(chunk.tolist(), chances.tolist(), best.tolist(), strict=True):
            predictions.append(TestPrediction(row, int(view.images.labels[row]), guess, chance))
    return predictions


def choose_cases(predictions: list[TestPrediction]) -> list[tuple[str, TestPrediction]]:
    """Of right and of wrong answers those at the 90th, 50th and 10th percentile of their chance."""
    picked: list[tuple[str, TestPrediction]] = []
    for right in (True, False):
        kind = sorted(
            (a for a in predictions if a.is_right == right), key=lambda a: (a.chance, a.row)
        )
        used = set()
        for share, words in zip(_AT, _WORDS, strict=True):
            if kind and (at := round(share * (len(kind) - 1))) not in used:
                used.add(at)
                picked.append((f"{'right' if right else 'wrong'}, {words}", kind[at]))
    return picked


def make_why_blocks(
    record: RunRecord, view: ReportView | MissingNote, photos: Photos
) -> tuple[Block, ...]:
    """Cases with their evidence, and what each class was taken for."""
    if isinstance(view, MissingNote):
        return (view,)
    predictions = predict_test_images(view)
    right = sum(a.is_right for a in predictions)
    lead = el(
        "p",
        format_html(
            "The {} on {} of {}: {} right, {} wrong. Shown are, of the right and of the wrong "
            "answers, those at the 90th, 50th and 10th percentile of the chance the model gives "
            "its answer; nobody picked them.",
            view.explainer.title,
            f"{len(predictions):,}",
            view.test_description,
            right,
            len(predictions) - right,
        ),
    )
    views: tuple[tuple[str, tuple[Block, ...]], ...] = tuple(
        (_write_title(record, words, prediction), (_render_case(record, view, prediction, photos),))
        for words, prediction in choose_cases(predictions)
    )
    blocks: list[Block] = [lead]
    if not view.explainer.has_parts:
        blocks.append(
            el(
                "p",
                "This model has no parts that its logits are made of. A Grad-CAM map says where "
                "its last stage speaks for a class; it does not add up to the logit.",
                class_="note",
            )
        )
    if views:
        blocks.append(ViewChoice(f"{record.name}-case", "Image", views))
    return (*blocks, _make_confusion(record, predictions))


def _write_title(record: RunRecord, words: str, prediction: TestPrediction) -> str:
    classes = record.run.classes
    title = f"{words}: {classes[prediction.predicted]} ({format_percent(prediction.chance, 0)})"
    return title if prediction.is_right else f"{title}, truly {classes[prediction.label]}"


def _render_case(
    record: RunRecord, view: ReportView, prediction: TestPrediction, photos: Photos
) -> Html:
    pixels = np.array(view.images.images[prediction.row])
    height, width = pixels.shape[:2]
    blank = Image.new("L", (1, 1))  # the copy to show is in `photos`, if it may be shown
    explained = view.explainer(
        "", OpenedImage((height, width), pixels, blank), also=(prediction.label,)
    )
    name = record.run.classes[prediction.predicted]
    first = explained.evidence[0]
    boxes = [r.box for r in first.contributions if r.box is not None and r.contribution > 0]
    label = f"a test image with the parts that speak for {name}"
    if view.shows_pixels:
        drawn = photos.draw_marked(prediction.row, boxes, label)
    else:
        words = f"{label}: boxes only, not the image"
        drawn = draw_empty_frame((height, width), boxes, None, words)
    truth = (
        "right" if prediction.is_right else f"wrong: it is {record.run.classes[prediction.label]}"
    )
    head = [
        el("p", name, class_="answer"),
        el("p", f"{format_percent(prediction.chance)} sure, {truth}", class_="soft"),
    ]
    sums = [_render_class(view, explained, c, prediction.row, photos) for c in explained.evidence]
    return el("div", el("div", drawn), el("div", *head, *sums), class_="case")


def _render_class(
    view: ReportView, explained: ImageExplanation, evidence: ClassEvidence, row: int, photos: Photos
) -> Html:
    head = el("h4", f"What speaks for {evidence.name}")
    if not explained.has_parts:
        map_ = evidence.contributions[0].map
        body: Html = el("p", "The map is not shown.", class_="soft")
        if view.shows_pixels and map_ is not None:
            label = f"Grad-CAM map for {evidence.name}"
            body = el("div", photos.draw_heated(row, map_, label), class_="strip four")
        return join([head, el("p", f"logit {format_value(evidence.logit)}"), body])
    values = round_contributions(evidence)
    largest = max((abs(value) for value in values[:-1]), default=0.0)
    rows = [
        _render_row(view, part, evidence.name, value, largest, row, photos)
        for part, value in zip(evidence.contributions, values, strict=True)
    ]
    total = el(
        "div",
        el("span"),
        el("span", "sum, which is the logit"),
        el("span"),
        el("span", format_value(sum(values)), class_="value"),
        class_="row total",
    )
    return join([head, el("div", *rows, total, class_="sum")])


def _render_row(
    view: ReportView,
    part: Contribution,
    class_name: str,
    value: float,
    largest: float,
    row: int,
    photos: Photos,
) -> Html:
    if part.part == OTHER:
        rest = (
            f"{format_count(part.units, 'more part')}, summed" if part.units else "left by rounding"
        )
        words = to_html(rest)
        picture: Html = el("span")
        drawn = el("span")
    else:
        terms = None
        if part.score is not None and part.weight is not None:
            terms = el("small", f"{format_value(part.score)} {TIMES} {format_value(part.weight)}")
        words = join([to_html(part.part.removesuffix(f" of class {class_name}")), terms])
        picture = el("span")
        if part.box is not None and view.shows_pixels:
            label = f"{part.part}: where it is seen"
            picture = photos.draw_framed(row, part.box, label)
        elif part.box is not None:
            size = view.images.images.shape[1:3]
            frame = (int(size[0]), int(size[1]))
            picture = draw_empty_frame(frame, [part.box], None, "its place")
        drawn = draw_bar(value, largest)
    number = el("span", format_value(value), class_="value")
    return el("div", picture, el("span", words), drawn, number, class_="row")


def _make_confusion(record: RunRecord, predictions: list[TestPrediction]) -> Figure:
    """True classes by predicted ones."""
    classes = list(record.run.classes)
    counts = np.zeros((len(classes), len(classes)), np.int64)
    for prediction in predictions:
        counts[prediction.label, prediction.predicted] += 1
    totals = counts.sum(1, keepdims=True).clip(1)
    cells = [
        [Cell(0.9 * s if n else None, str(n) if n else "", f"{n} images") for n, s in zip(ns, ss)]
        for ns, ss in zip(counts.tolist(), (counts / totals).tolist())
    ]

    def draw(width: float) -> Drawing:
        return draw_matrix(
            classes, classes, cells, "What each class was taken for", width, "predicted"
        )

    columns = (Column("true class"), Column("taken for"), Column("images", number=True))
    rows = tuple(
        (classes[true], classes[predicted], int(counts[true, predicted]))
        for true, predicted in np.argwhere(counts).tolist()
    )
    title = "What each class was taken for"
    table = Table(f"{record.name}-confusion", title, columns, rows)
    caption = format_html(
        "Rows are true classes, columns predicted ones; the tone is the share of the row."
    )
    return Figure(f"{record.name}-confusion", caption, draw, table)
