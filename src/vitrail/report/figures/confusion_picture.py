"""A picture of a confusion matrix: what each class was taken for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vitrail.files import write_bytes

_MOST_NUMBERS = 20
_MOST_NAMES = 60


def draw_confusion(confusion: Sequence[Sequence[int]], classes: Sequence[str], path: Path) -> None:
    """Draw true classes by predicted ones as a PNG, colored by the share of each true class."""
    counts = np.asarray(confusion, dtype=np.int64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    size = min(max(0.36 * len(classes), 2.6), 14.0)
    longest = max(len(shorten_name(name)) for name in classes) * 0.06
    figure = Figure(figsize=(size + longest + 1.4, size + longest + 0.8), dpi=120)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    if len(classes) <= _MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.55 else "black"
            axes.text(column, row, f"{count}", ha="center", va="center", fontsize=7, color=color)
    step = -(-len(classes) // _MOST_NAMES)
    at = list(range(0, len(classes), step))
    names = [shorten_name(classes[i]) for i in at]
    axes.set_xticks(at, names, fontsize=7, rotation=90)
    axes.set_yticks(at, names, fontsize=7)
    axes.set_xlabel("predicted", fontsize=9)
    axes.set_ylabel("true", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.7)
    bar.set_label("share of the true class", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())


def shorten_name(name: str) -> str:
    """At most 36 letters, from both ends; a dollar sign would start a formula."""
    name = name if len(name) <= 36 else f"{name[:18]}…{name[-17:]}"
    return name.replace("$", r"\$")
