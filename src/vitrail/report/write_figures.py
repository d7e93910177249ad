"""Every figure of a report as SVG and PNG, every table as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from vitrail.files import make_folder_name, write_bytes, write_text
from vitrail.report.blocks import WIDE, Figure
from vitrail.report.charts.raster import render_png
from vitrail.report.html_table import Table

Leaf: TypeAlias = Figure | Table


def write_figures(leaves: Sequence[Leaf], folder: Path) -> list[Path]:
    """Write them into a folder; names are those of the run and of what is shown."""
    written: list[Path] = []
    for leaf in leaves:
        stem = make_folder_name(leaf.name)
        if isinstance(leaf, Figure):
            drawing = leaf.draw(WIDE)
            write_text(folder / f"{stem}.svg", drawing.to_svg_file())
            write_bytes(folder / f"{stem}.png", render_png(drawing))
            written += [folder / f"{stem}.svg", folder / f"{stem}.png"]
        else:
            write_text(folder / f"{stem}.csv", leaf.to_csv())
            written.append(folder / f"{stem}.csv")
    return written
