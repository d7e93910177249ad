"""Grad-CAM of the same images under every defense, side by side, as a PNG."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vitrail.audit.map_fidelity import FidelityReport
from vitrail.explain.map_similarity import is_constant, scale_map
from vitrail.files import write_bytes
from vitrail.report.pages.fidelity_page import choose_rows, describe_defenses

_SIDE = 1.25  # inches of a picture


def draw_fidelity(report: FidelityReport, path: Path, pictures: int = 6) -> None:
    """One image a row; the image, its map without a defense, and its map under each run."""
    rows = choose_rows(len(report.labels), pictures)
    titles = ["image", "no defense", *(describe_defenses(run) for run in report.runs)]
    size = (_SIDE * len(titles) + 0.6, _SIDE * len(rows) + 0.5)
    figure = Figure(figsize=size, dpi=120)
    figure.set_layout_engine("constrained")
    grid = figure.subplots(len(rows), len(titles), squeeze=False)
    for line, at in zip(grid, rows, strict=True):
        pixels = report.pixels[at]
        gray = pixels.mean(-1) if pixels.ndim == 3 else pixels
        line[0].imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=255)
        line[0].set_ylabel(report.classes[report.labels[at]], fontsize=8)
        for axes, view in zip(line[1:], report.views, strict=True):
            axes.imshow(gray, cmap="gray", vmin=0, vmax=255)
            if not is_constant(view.maps[at]):
                level = scale_map(view.maps[at]).numpy() / 255
                axes.imshow(level, cmap="inferno", alpha=np.sqrt(level) * 0.85, vmin=0, vmax=1)
            axes.set_xlabel(report.classes[int(view.predicted[at])], fontsize=7, labelpad=1)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title.replace(", ", "\n"), fontsize=8)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())
