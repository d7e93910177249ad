"""Grad-CAM of the same images under every defense, side by side, as a PNG."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vitrail.audit.fidelity import FidelityReport
from vitrail.explain.closeness import constant, scaled
from vitrail.files import write_bytes
from vitrail.report.fidelity_page import chosen_rows, title_of

_SIDE = 1.25  # inches of a picture


def fidelity_picture(report: FidelityReport, path: Path, pictures: int = 6) -> None:
    """One image a row; the image, its map without a defense, and its map under each run."""
    rows = chosen_rows(len(report.labels), pictures)
    titles = ["image", "no defense", *(title_of(run) for run in report.runs)]
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
            if not constant(view.maps[at]):
                level = scaled(view.maps[at]).numpy() / 255
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
