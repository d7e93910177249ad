"""A drawing in a file, as SVG or PNG by the end of its name."""

from __future__ import annotations

from pathlib import Path

from vitrail.errors import ConfigError
from vitrail.files import write_bytes, write_text
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.raster import render_png


def write_drawing(drawing: Drawing, path: Path) -> None:
    """Write it; the same drawing gives the same bytes on the same machine."""
    form = path.suffix.casefold()
    if form == ".svg":
        write_text(path, drawing.to_svg_file())
    elif form == ".png":
        write_bytes(path, render_png(drawing))
    else:
        raise ConfigError(
            f"a picture cannot be written as {path.name!r}",
            where="--out",
            hint="Use a name in .png, .svg or .json.",
        )
