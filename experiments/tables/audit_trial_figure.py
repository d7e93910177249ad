"""P-values of classes in which nothing was injected; were they uniform, bars would be equal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.tables.figure_style import COLORS, FONT, INK
from vitrail.files import write_bytes

BINS = 20


def draw_p_values(p_values: Sequence[float], path: Path) -> None:
    """Counts by twentieths as a PNG, with what is expected and where 95 % of bars should end."""
    from scipy.stats import binom  # slow to import, seldom needed

    count = len(p_values)
    low, high = binom.ppf([0.025, 0.975], count, 1 / BINS)
    from matplotlib.figure import Figure  # for figures only

    figure = Figure(figsize=(4.6, 2.4), dpi=110)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.hist(
        p_values, bins=np.linspace(0, 1, BINS + 1).tolist(), color=COLORS[5], edgecolor="white"
    )
    axes.axhspan(low, high, color=INK, alpha=0.15, linewidth=0)
    axes.axhline(count / BINS, color=INK, linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_xlabel("p-value before correction", fontsize=FONT)
    axes.set_ylabel(f"of {count} unbiased classes", fontsize=FONT)
    axes.tick_params(labelsize=FONT - 1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())
