"""The evidence for one image as a picture, for slides and papers."""

from __future__ import annotations

import io
import textwrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.patches import Rectangle

from vitrail.explain.evidence import OTHER, ClassEvidence, Contribution
from vitrail.report.explain_images import Explainer, ImageExplanation
from vitrail.report.pages.evidence_page import compute_extent, round_contributions
from vitrail.report.pages.page_elements import color_heat, format_number, image_from_array
from vitrail.report.training_patches import Patches

INK, SOFT, LINE = "#1d2330", "#5c6577", "#d9d6cc"
FOR, AGAINST, MARK = "#0072b2", "#d55e00", "#f0e442"
_ROW, _HEAD, _FOOT = 1.32, 0.62, 0.8  # inches
_WIDE = 11.0
TIMES = "\N{MULTIPLICATION SIGN}"
_COLUMNS = ("part of this image", "where it is seen", "learned from")


def draw_evidence(explainer: Explainer, explanation: ImageExplanation) -> bytes:
    """One image, the classes asked for, their parts and the sums, as PNG bytes."""
    patches = explainer.patches if explanation.has_parts else Patches("")
    blocks = [
        _HEAD + _FOOT + _ROW * max(1, _count_parts(evidence)) for evidence in explanation.evidence
    ]
    top = 2.5
    figure = Figure(figsize=(_WIDE, top + sum(blocks) + 0.25), dpi=140, facecolor="white")
    high = figure.get_size_inches()[1]
    grid = figure.add_gridspec(
        len(blocks) + 1,
        1,
        height_ratios=[top, *blocks],
        left=0.03,
        right=0.985,
        top=1 - 0.1 / high,
        bottom=0.12 / high,
        hspace=0,
    )
    _draw_summary(figure, grid[0], explainer, explanation)
    for at, evidence in enumerate(explanation.evidence):
        _draw_class(figure, grid[at + 1], explanation, evidence, patches)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    return buffer.getvalue()


def _count_parts(evidence: ClassEvidence) -> int:
    return sum(row.part != OTHER for row in evidence.contributions)


def to_plain_text(text: str, most: int = 60) -> str:
    """Text that matplotlib will not take for a formula, shortened in the middle."""
    text = text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2 - 1) :]}"
    return text.replace("$", r"\$")


def _draw_summary(
    figure: Figure, place: SubplotSpec, explainer: Explainer, explanation: ImageExplanation
) -> None:
    grid = place.subgridspec(1, 2, width_ratios=(2.3, _WIDE - 2.3), wspace=0.06)
    axes = figure.add_subplot(grid[0])
    _draw_photo(axes, explanation)
    for row in explanation.evidence[0].contributions:
        if row.box is not None and row.contribution > 0:
            _draw_frame(axes, row.box)
    text = figure.add_subplot(grid[1])
    text.axis("off")
    text.set(xlim=(0, 1), ylim=(0, 1))
    card = explainer.run.card
    model_line = (
        f"{explainer.title}, {card['method']} on {card['backbone']}, round {explainer.run.round}"
    )
    text.text(0, 0.93, "predicted", color=SOFT, fontsize=10, va="center")
    text.text(
        0,
        0.78,
        to_plain_text(explanation.evidence[0].name, 48),
        fontsize=18,
        weight="bold",
        color=INK,
        va="center",
    )
    ranked = sorted(range(len(explanation.classes)), key=lambda c: -explanation.probabilities[c])[
        :4
    ]
    for line, label in enumerate(ranked):
        y, share = 0.6 - 0.115 * line, explanation.probabilities[label]
        text.text(
            0, y, to_plain_text(explanation.classes[label], 40), fontsize=10, color=INK, va="center"
        )
        text.add_patch(Rectangle((0.46, y - 0.03), 0.4, 0.06, color="#efede6", linewidth=0))
        text.add_patch(Rectangle((0.46, y - 0.03), 0.4 * share, 0.06, color=FOR, linewidth=0))
        text.text(0.93, y, f"{100 * share:.1f} %", fontsize=10, color=INK, va="center", ha="right")
    text.text(
        0,
        0.07,
        to_plain_text(f"{explanation.name}. {model_line}", 110),
        color=SOFT,
        fontsize=9,
        va="center",
    )


def _draw_class(
    figure: Figure,
    place: SubplotSpec,
    explanation: ImageExplanation,
    evidence: ClassEvidence,
    patches: Patches,
) -> None:
    """A class: title, one row for each part, the sum."""
    count = max(1, _count_parts(evidence))
    grid = place.subgridspec(
        count + 2, 4, height_ratios=[_HEAD, *[_ROW] * count, _FOOT], hspace=0.08,
        width_ratios=(1.4, 1.4, 1.4, _WIDE - 4.2), wspace=0.06,
    )  # fmt: skip
    if not explanation.has_parts:
        why = "This model has no parts. The map does not add up to the logit."
        _draw_title(figure, grid[0, :], f"Grad-CAM for {evidence.name}", why)
        _draw_map(figure.add_subplot(grid[1, 0:2]), explanation, evidence.contributions[0])
        _draw_total(figure, grid[2, :], evidence.logit, "logit")
        return
    _draw_title(figure, grid[0, :], explanation.title_class(evidence))
    for column, name in enumerate(_COLUMNS):
        box = grid[1, column].get_position(figure)
        figure.text(
            box.x0, box.y1 + 0.06 / figure.get_size_inches()[1], name, fontsize=8.5, color=SOFT
        )
    shown = round_contributions(evidence)
    largest = max((abs(value) for value in shown[:-1]), default=0.0) or 1.0
    for line, (row, value) in enumerate(zip(evidence.contributions[:-1], shown)):
        photo = figure.add_subplot(grid[line + 1, 0])
        _draw_photo(photo, explanation)
        if row.box is not None:
            _draw_frame(photo, row.box)
        heatmap, patch = (
            figure.add_subplot(grid[line + 1, 1]),
            figure.add_subplot(grid[line + 1, 2]),
        )
        _draw_map(heatmap, explanation, row)
        _draw_training_patch(patch, row, patches)
        _draw_formula(figure.add_subplot(grid[line + 1, 3]), row, value, largest)
    last = (
        f"other: {evidence.contributions[-1].units} more parts, summed",
        format_number(shown[-1]),
    )
    _draw_total(figure, grid[count + 1, :], sum(shown), explanation.title_sum(evidence), last)


def _draw_title(figure: Figure, place: SubplotSpec, title: str, below: str = "") -> None:
    axes = figure.add_subplot(place)
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0, 0.72, to_plain_text(title, 90), fontsize=13, weight="bold", color=INK, va="center")
    axes.text(0, 0.3, below, fontsize=10, color=SOFT, va="center")


def _draw_photo(axes: Any, explanation: ImageExplanation) -> None:
    """The original, in its own pixels; what the model did not see is in shadow."""
    height, width = explanation.image.size
    axes.imshow(np.asarray(explanation.image.shown.convert("RGB")), extent=(0, width, height, 0))
    x0, y0, x1, y1 = compute_extent(explanation)
    for x, y, w, h in (
        (0, 0, width, y0),
        (0, y1, width, height - y1),
        (0, 0, x0, height),
        (x1, 0, width - x1, height),
    ):
        if w > 0 and h > 0:
            axes.add_patch(Rectangle((x, y), w, h, color="black", alpha=0.5, linewidth=0))
    axes.set(xlim=(0, width), ylim=(height, 0))
    _strip_axes(axes)


def _strip_axes(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_anchor("W")
    for spine in axes.spines.values():
        spine.set_color(LINE)


def _draw_frame(axes: Any, box: tuple[float, float, float, float]) -> None:
    x0, y0, x1, y1 = box
    for color, width in (("black", 3.2), (MARK, 1.6)):
        axes.add_patch(
            Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=color, linewidth=width)
        )


def _draw_map(axes: Any, explanation: ImageExplanation, row: Contribution) -> None:
    """The activation map over a gray photograph."""
    height, width = explanation.image.size
    axes.imshow(
        np.asarray(explanation.image.shown.convert("L")),
        extent=(0, width, height, 0),
        cmap="gray",
        vmin=0,
        vmax=255,
    )
    if row.map is not None:
        x0, y0, x1, y1 = compute_extent(explanation)
        axes.imshow(color_heat(row.map), extent=(x0, x1, y1, y0), interpolation="bilinear")
    axes.set(xlim=(0, width), ylim=(height, 0))
    _strip_axes(axes)


def _draw_training_patch(axes: Any, row: Contribution, patches: Patches) -> None:
    unit = None if row.map is None else row.unit
    patch = patches.get(unit)
    if patch is None:
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_aspect("equal")
        _strip_axes(axes)
        words = textwrap.fill(to_plain_text(patches.explain_missing(unit), 110), 21)
        axes.text(
            0.5,
            0.5,
            to_plain_text(words, 90),
            ha="center",
            va="center",
            fontsize=6.5,
            color=SOFT,
            wrap=True,
        )
        return
    axes.imshow(np.asarray(image_from_array(patch.pixels).convert("RGB")))
    _draw_frame(axes, tuple(value - 0.5 for value in patch.box))  # type: ignore[arg-type]
    _strip_axes(axes)


def _draw_formula(axes: Any, row: Contribution, value: float, largest: float) -> None:
    """The name, the numbers, and a bar to the right or left."""
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0.02, 0.74, to_plain_text(row.part, 58), fontsize=10.5, color=INK, va="center")
    if row.score is not None and row.weight is not None:
        terms = (
            f"similarity {format_number(row.score)} {TIMES} weight {format_number(row.weight)} ="
        )
        axes.text(0.02, 0.5, terms, fontsize=9.5, color=SOFT, va="center")
    axes.text(
        0.98,
        0.5,
        format_number(value),
        fontsize=11,
        weight="bold",
        color=INK,
        va="center",
        ha="right",
    )
    axes.add_patch(Rectangle((0.02, 0.2), 0.96, 0.12, color="#efede6", linewidth=0))
    length = 0.48 * abs(value) / largest
    start = 0.5 if value >= 0 else 0.5 - length
    color = FOR if value >= 0 else AGAINST
    axes.add_patch(Rectangle((start, 0.2), length, 0.12, color=color, linewidth=0))
    axes.plot([0.5, 0.5], [0.2, 0.32], color=SOFT, linewidth=0.8)


def _draw_total(
    figure: Figure,
    place: SubplotSpec,
    value: float,
    label: str,
    other: tuple[str, str] = ("", ""),
) -> None:
    """What is left, a line, and the sum."""
    axes = figure.add_subplot(place)
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0, 0.8, other[0], fontsize=10, color=SOFT, va="center")
    axes.text(0.988, 0.8, other[1], fontsize=11, color=SOFT, va="center", ha="right")
    axes.plot([0, 0.988], [0.58, 0.58], color=INK, linewidth=1.2)
    axes.text(0, 0.34, label, fontsize=10.5, color=INK, weight="bold", va="center")
    axes.text(
        0.988,
        0.34,
        format_number(value),
        fontsize=12,
        weight="bold",
        color=INK,
        va="center",
        ha="right",
    )
