"""A drawing as PNG, drawn by matplotlib from the same shapes."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon

from vitrail.report.charts.drawing import Drawing, Mark, Path, Text, compute_outline
from vitrail.report.charts.palette import get_light_color

_DPI = 192  # two pixels for each unit of a drawing
_UNIT = 72 / 96  # points
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def render_png(drawing: Drawing) -> bytes:
    """The picture at twice its size on the page, on white."""
    figure = Figure(figsize=(drawing.width / 96, drawing.height / 96), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    for order, shape in enumerate(drawing.shapes):
        if isinstance(shape, Text):
            if shape.min_zoom > 1:  # for zoomed charts only
                continue
            _draw_text(axes, shape, order)
        elif isinstance(shape, Mark):
            _draw_mark(axes, shape, order)
        else:
            _draw_path(axes, shape, order)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    return buffer.getvalue()


def _draw_path(axes: Any, path: Path, order: int) -> None:
    if path.fill is not None:
        edge = "none" if path.stroke is None else get_light_color(path.stroke)
        axes.add_patch(
            Polygon(
                path.points,
                closed=True,
                facecolor=get_light_color(path.fill),
                edgecolor=edge,
                linewidth=path.width * _UNIT if path.stroke else 0,
                alpha=path.alpha,
                zorder=order,
            )
        )
    elif path.stroke is not None:
        xs, ys = zip(*path.points, strict=True)
        style: Any = "-"
        if path.dash:
            style = (0, tuple(d / max(path.width, 0.1) for d in path.dash))
        axes.plot(
            xs,
            ys,
            color=get_light_color(path.stroke),
            linewidth=path.width * _UNIT,
            linestyle=style,
            alpha=path.alpha,
            zorder=order,
            solid_joinstyle="round",
            clip_on=False,
        )


def _draw_mark(axes: Any, mark: Mark, order: int) -> None:
    if mark.alpha == 0:
        return
    color = get_light_color(mark.role)
    if mark.sign in ("circle", "ring"):
        ring = mark.sign == "ring"
        axes.add_patch(
            Circle(
                mark.at,
                mark.radius,
                facecolor="none" if ring else color,
                edgecolor=color if ring else "none",
                linewidth=2 * _UNIT if ring else 0,
                alpha=mark.alpha,
                zorder=order,
            )
        )
    else:
        axes.add_patch(
            Polygon(
                compute_outline(mark), facecolor=color, linewidth=0, alpha=mark.alpha, zorder=order
            )
        )


def _draw_text(axes: Any, text: Text, order: int) -> None:
    axes.text(
        *text.at,
        text.text,
        color=get_light_color(text.role),
        fontsize=text.size * _UNIT,
        ha=_ALIGN[text.anchor],
        va="center",
        fontweight="bold" if text.bold else "normal",
        rotation=text.turn,
        rotation_mode="anchor",
        parse_math=False,  # a "$" in a name is a character
        zorder=order + 1,
    )
