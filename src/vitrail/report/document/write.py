"""Every figure of a report as SVG and PNG, every table as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from vitrail.files import folder_name, write_bytes, write_text
from vitrail.report.document.block import WIDE, Figure
from vitrail.report.document.raster import png
from vitrail.report.document.table import Table

Leaf: TypeAlias = Figure | Table


def write_figures(found: Sequence[Leaf], folder: Path) -> list[Path]:
    """Write them into a folder; names are those of the run and of what is shown."""
    written: list[Path] = []
    for leaf in found:
        stem = folder_name(leaf.name)
        if isinstance(leaf, Figure):
            scene = leaf.draw(WIDE)
            write_text(folder / f"{stem}.svg", scene.file())
            write_bytes(folder / f"{stem}.png", png(scene))
            written += [folder / f"{stem}.svg", folder / f"{stem}.png"]
        else:
            write_text(folder / f"{stem}.csv", leaf.csv())
            written.append(folder / f"{stem}.csv")
    return written
