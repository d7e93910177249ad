"""The section "why": evidence for some right and wrong predictions, chosen by a stated rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.audit_figures import empty_frame
from vitrail.report.document.account import Account
from vitrail.report.document.block import Block, Choice, Figure, Missing
from vitrail.report.document.chart_matrix import Cell, matrix
from vitrail.report.document.grounds import normalized_rows
from vitrail.report.document.markup import Html, el, html, join, say
from vitrail.report.document.photos import Photos
from vitrail.report.document.scale import count, figure, percent
from vitrail.report.document.scene import Scene
from vitrail.report.document.table import Column, Table
from vitrail.report.document.window import Window
from vitrail.report.evidence_html import bar
from vitrail.report.evidence_page import rounded
from vitrail.report.explanation import Explained, Opened

TIMES = "\N{MULTIPLICATION SIGN}"
_LOOKED = 240  # test images that are looked at, evenly over all of them
_CHUNK = 40
_AT = (0.9, 0.5, 0.1)  # of the images of a kind, ordered by the chance of the answer
_WORDS = ("sure", "typical", "hesitant")


@dataclass(frozen=True)
class Answer:
    """What a model said of one test image."""

    row: int
    label: int
    predicted: int
    chance: float

    @property
    def right(self) -> bool:
        """Whether it was the true class."""
        return self.label == self.predicted


@torch.no_grad()
def answers(seen: Window) -> list[Answer]:
    """The predictions on up to 240 test images, evenly over all that may be looked at."""
    at = np.linspace(0, len(seen.test) - 1, min(_LOOKED, len(seen.test))).round().astype(np.int64)
    rows = seen.test[at]
    found = []
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        logits = seen.explainer.model.network(normalized_rows(seen, some))
        chances, best = torch.softmax(logits.double(), 1).max(1)
        for row, chance, guess in zip(some.tolist(), chances.tolist(), best.tolist(), strict=True):
            found.append(Answer(row, int(seen.images.labels[row]), guess, chance))
    return found


def chosen(found: list[Answer]) -> list[tuple[str, Answer]]:
    """Of right and of wrong answers those at the 90th, 50th and 10th percentile of their chance."""
    picked: list[tuple[str, Answer]] = []
    for right in (True, False):
        kind = sorted((a for a in found if a.right == right), key=lambda a: (a.chance, a.row))
        seen = set()
        for share, words in zip(_AT, _WORDS, strict=True):
            if kind and (at := round(share * (len(kind) - 1))) not in seen:
                seen.add(at)
                picked.append((f"{'right' if right else 'wrong'}, {words}", kind[at]))
    return picked


def why(account: Account, seen: Window | Missing, photos: Photos) -> tuple[Block, ...]:
    """Cases with their evidence, and what each class was taken for."""
    if isinstance(seen, Missing):
        return (seen,)
    found = answers(seen)
    right = sum(a.right for a in found)
    lead = el(
        "p",
        say(
            "The {} on {} of {}: {} right, {} wrong. Shown are, of the right and of the wrong "
            "answers, those at the 90th, 50th and 10th percentile of the chance the model gives "
            "its answer; nobody picked them.",
            seen.explainer.title,
            f"{len(found):,}",
            seen.whose,
            right,
            len(found) - right,
        ),
    )
    views: tuple[tuple[str, tuple[Block, ...]], ...] = tuple(
        (_title(account, words, one), (_case(account, seen, one, photos),))
        for words, one in chosen(found)
    )
    blocks: list[Block] = [lead]
    if not seen.explainer.parts:
        blocks.append(
            el(
                "p",
                "This model has no parts that its logits are made of. A Grad-CAM map says where "
                "its last stage speaks for a class; it does not add up to the logit.",
                class_="note",
            )
        )
    if views:
        blocks.append(Choice(f"{account.name}-case", "Image", views))
    return (*blocks, _confusion(account, found))


def _title(account: Account, words: str, one: Answer) -> str:
    told = f"{words}: {account.run.classes[one.predicted]} ({percent(one.chance, 0)})"
    return told if one.right else f"{told}, truly {account.run.classes[one.label]}"


def _case(account: Account, seen: Window, one: Answer, photos: Photos) -> Html:
    pixels = np.array(seen.images.images[one.row])
    height, width = pixels.shape[:2]
    blank = Image.new("L", (1, 1))  # the copy to show is in `photos`, if it may be shown
    explained = seen.explainer("", Opened((height, width), pixels, blank), also=(one.label,))
    name = account.run.classes[one.predicted]
    first = explained.evidence[0]
    boxes = [r.box for r in first.contributions if r.box is not None and r.contribution > 0]
    label = f"a test image with the parts that speak for {name}"
    if seen.shown:
        drawn = photos.marked(one.row, boxes, label)
    else:
        drawn = Html(
            empty_frame((height, width), boxes, None, f"{label}: boxes only, not the image")
        )
    truth = "right" if one.right else f"wrong: it is {account.run.classes[one.label]}"
    head = [
        el("p", name, class_="answer"),
        el("p", f"{percent(one.chance)} sure, {truth}", class_="soft"),
    ]
    sums = [_class(seen, explained, c, one.row, photos) for c in explained.evidence]
    return el("div", el("div", drawn), el("div", *head, *sums), class_="case")


def _class(
    seen: Window, explained: Explained, found: ClassEvidence, row: int, photos: Photos
) -> Html:
    head = el("h4", f"What speaks for {found.name}")
    if not explained.parts:
        map_ = found.contributions[0].map
        body: Html = el("p", "The map is not shown.", class_="soft")
        if seen.shown and map_ is not None:
            label = f"Grad-CAM map for {found.name}"
            body = el("div", photos.heated(row, map_, label), class_="strip four")
        return join([head, el("p", f"logit {figure(found.logit)}"), body])
    values = rounded(found)
    largest = max((abs(value) for value in values[:-1]), default=0.0)
    rows = [
        _row(seen, part, found.name, value, largest, row, photos)
        for part, value in zip(found.contributions, values, strict=True)
    ]
    total = el(
        "div",
        el("span"),
        el("span", "sum, which is the logit"),
        el("span"),
        el("span", figure(sum(values)), class_="value"),
        class_="row total",
    )
    return join([head, el("div", *rows, total, class_="sum")])


def _row(
    seen: Window,
    part: Contribution,
    of: str,
    value: float,
    largest: float,
    row: int,
    photos: Photos,
) -> Html:
    if part.part == OTHER:
        left = f"{count(part.units, 'more part')}, summed" if part.units else "left by rounding"
        words = html(left)
        picture: Html = el("span")
        drawn = el("span")
    else:
        terms = None
        if part.score is not None and part.weight is not None:
            terms = el("small", f"{figure(part.score)} {TIMES} {figure(part.weight)}")
        words = join([html(part.part.removesuffix(f" of class {of}")), terms])
        picture = el("span")
        if part.box is not None and seen.shown:
            label = f"{part.part}: where it is seen"
            picture = photos.framed(row, part.box, label)
        elif part.box is not None:
            size = seen.images.images.shape[1:3]
            picture = Html(empty_frame((int(size[0]), int(size[1])), [part.box], None, "its place"))
        drawn = Html(bar(value, largest))
    number = el("span", figure(value), class_="value")
    return el("div", picture, el("span", words), drawn, number, class_="row")


def _confusion(account: Account, found: list[Answer]) -> Figure:
    """True classes by predicted ones."""
    classes = list(account.run.classes)
    counts = np.zeros((len(classes), len(classes)), np.int64)
    for one in found:
        counts[one.label, one.predicted] += 1
    totals = counts.sum(1, keepdims=True).clip(1)
    cells = [
        [Cell(0.9 * s if n else None, str(n) if n else "", f"{n} images") for n, s in zip(ns, ss)]
        for ns, ss in zip(counts.tolist(), (counts / totals).tolist())
    ]

    def draw(width: float) -> Scene:
        return matrix(classes, classes, cells, "What each class was taken for", width, "predicted")

    columns = (Column("true class"), Column("taken for"), Column("images", number=True))
    rows = tuple(
        (classes[true], classes[said], int(counts[true, said]))
        for true, said in np.argwhere(counts).tolist()
    )
    title = "What each class was taken for"
    table = Table(f"{account.name}-confusion", title, columns, rows)
    told = say("Rows are true classes, columns predicted ones; the tone is the share of the row.")
    return Figure(f"{account.name}-confusion", told, draw, table)
