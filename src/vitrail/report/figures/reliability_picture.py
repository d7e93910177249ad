"""Calibration: how often the model is right when it says how sure it is."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vitrail.files import write_bytes
from vitrail.metrics.classification import CALIBRATION_BINS, Floats, Integers
from vitrail.metrics.resampled import assign_bins

_BAR, _GAP = "#0072B2", "#D55E00"


@dataclass(frozen=True)
class Bin:
    """The examples whose largest probability lies in (low, high]."""

    low: float
    high: float
    images: int
    confidence: float | None
    accuracy: float | None


def compute_reliability(probabilities: Floats, labels: Integers) -> tuple[Bin, ...]:
    """Mean confidence and accuracy in equal bins of the largest probability."""
    place = assign_bins(probabilities)
    top = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, CALIBRATION_BINS + 1).tolist()
    bins = []
    for i in range(CALIBRATION_BINS):
        in_bin = place == i
        count = int(in_bin.sum())
        sure = float(top[in_bin].mean()) if count else None
        hits = float(right[in_bin].mean()) if count else None
        bins.append(Bin(edges[i], edges[i + 1], count, sure, hits))
    return tuple(bins)


def draw_reliability(bins: Sequence[Bin], ece: float | None, path: Path) -> None:
    """Draw accuracy against confidence as a PNG, with the number of images below."""
    figure = Figure(figsize=(4.6, 5.0), dpi=130, layout="constrained")
    top, below = figure.subplots(2, 1, height_ratios=(4, 1), sharex=True)
    used = [b for b in bins if b.confidence is not None and b.accuracy is not None]
    width = 1 / max(1, len(bins))
    middle = [(b.low + b.high) / 2 for b in used]
    top.plot([0, 1], [0, 1], color="#888888", linewidth=1, linestyle=(0, (4, 2)))
    top.bar(middle, [b.accuracy or 0.0 for b in used], width * 0.92, color=_BAR, label="accuracy")
    top.scatter(
        middle,  # so that what lies between a bar's end and its dot is the error
        [b.confidence or 0.0 for b in used],
        color=_GAP,
        s=16,
        zorder=3,
        label="mean confidence",
    )
    top.set(xlim=(0, 1), ylim=(0, 1), ylabel="share")
    title = "calibration" if ece is None else f"calibration (ECE {ece:.3f})"
    top.set_title(title, fontsize=10, loc="left")
    top.legend(loc="upper left", fontsize=8, frameon=False)
    below.bar(middle, [b.images for b in used], width * 0.92, color="#999999")
    below.set(xlabel="largest probability", ylabel="images")
    for axes in (top, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_size(9)
        axes.yaxis.label.set_size(9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())
