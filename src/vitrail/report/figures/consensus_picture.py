"""A picture of the sites' agreement: classes by consensus, and who is far from the mean."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from vitrail.audit.consensus import Agreement
from vitrail.errors import ConfigError
from vitrail.files import write_bytes
from vitrail.report.figures.confusion_picture import shorten_name

_MOST_NAMES = 80
_INK, _DOT, _GAP = "#333333", "#0072B2", "#D55E00"


def draw_consensus(agreement: Agreement, path: Path) -> None:
    """Draw it as PNG or SVG: marks of consensus and eigengap, beside them a map of distances."""
    form = path.suffix.casefold().lstrip(".")
    if form not in ("png", "svg"):
        raise ConfigError(
            f"a picture cannot be written as {path.name!r}",
            where="--out",
            hint="Use a name in .png, .svg or .json.",
        )
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vitrail"}):
        figure = _draw_figure(agreement)
        buffer = io.BytesIO()
        date = {"Date": None} if form == "svg" else {}
        figure.savefig(buffer, format=form, metadata=date)
    write_bytes(path, buffer.getvalue())


def describe_consensus(agreement: Agreement) -> list[str]:
    """The classes with the most and the least agreement, and who stands apart most, in words."""
    order = np.argsort(-agreement.consensus, kind="stable")
    best, worst = int(order[0]), int(order[-1])
    lines = [
        f"agreed most: {agreement.classes[best]} (consensus {agreement.consensus[best]:.2f})",
        f"agreed least: {agreement.classes[worst]} (consensus {agreement.consensus[worst]:.2f}, "
        f"eigengap {agreement.eigengap[worst]:.2f})",
    ]
    deviations = agreement.rank_deviations()
    if not deviations:
        return [*lines, "the server saw no site's own subspaces, so nobody's distance is known"]
    first = deviations[0]
    return [
        *lines,
        f"furthest from the others: {first.site} on {first.label} (distance "
        f"{first.distance:.2f} of {agreement.largest:.2f}, {first.excess:.1f} robust SDs over the "
        "median site)",
    ]


def _draw_figure(agreement: Agreement) -> Figure:
    order = np.argsort(-agreement.consensus, kind="stable")
    count = len(order)
    height = min(max(0.17 * count, 2.2), 14.0) + 1.1
    sites = len(agreement.sites) if agreement.distance is not None else 0
    width = min(0.3 * sites, 9.0)
    figure = Figure(figsize=(5.2 + width, height), dpi=130, facecolor="white")
    figure.set_layout_engine("constrained")
    if agreement.distance is None:
        _draw_marks(figure.subplots(), agreement, order)
        return figure
    ratios = [3.0, max(width, 1.2)]
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=ratios)
    _draw_marks(left, agreement, order)
    _draw_distances(figure, right, agreement, order)
    return figure


def _draw_marks(axes: Any, agreement: Agreement, order: Any) -> None:
    """Consensus as a dot and the eigengap as a line, from the least value there is to 1."""
    at = np.arange(len(order))
    axes.plot(agreement.consensus[order], at, "o", color=_DOT, ms=5, label="consensus")
    axes.plot(agreement.eigengap[order], at, "|", color=_GAP, ms=9, mew=2, label="eigengap")
    least = float(min(agreement.consensus.min(), agreement.eigengap.min()))
    axes.set_xlim(max(0.0, least - 0.05), 1.02)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    step = -(-len(order) // _MOST_NAMES)
    names = [shorten_name(agreement.classes[i]) for i in order]
    axes.set_yticks(at[::step], names[::step], fontsize=7)
    axes.tick_params(labelsize=7, colors=_INK)
    axes.set_xlabel(f"agreement of the sites, round {agreement.round}", fontsize=8, color=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7, frameon=False)


def _draw_distances(figure: Figure, axes: Any, agreement: Agreement, order: Any) -> None:
    """Geodesic distances, dark where a site is far; white with a cross where it never took part."""
    assert agreement.distance is not None
    values = agreement.distance[:, order].T
    image = axes.imshow(values, cmap="Greys", vmin=0.0, aspect="auto", interpolation="nearest")
    for row, column in np.argwhere(~np.isfinite(values)):
        axes.plot(column, row, "x", color=_GAP, ms=4)
    axes.tick_params(labelleft=False, labelsize=7, colors=_INK)
    axes.set_xticks(
        range(len(agreement.sites)), map(shorten_name, agreement.sites), fontsize=7, rotation=90
    )
    bar = figure.colorbar(image, ax=axes, shrink=0.6)
    bar.set_label(f"distance from the mean (at most {agreement.largest:.2f})", fontsize=7)
    bar.ax.tick_params(labelsize=7)
