"""A scene as PNG, drawn by matplotlib from the same shapes."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon

from vitrail.report.document.palette import light
from vitrail.report.document.scene import Mark, Path, Scene, Text, outline

_DPI = 192  # two pixels for each unit of a scene
_UNIT = 72 / 96  # points
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def png(scene: Scene) -> bytes:
    """The picture at twice its size on the page, on white."""
    figure = Figure(figsize=(scene.width / 96, scene.height / 96), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    axes.axis("off")
    for order, shape in enumerate(scene.shapes):
        if isinstance(shape, Text):
            if shape.above > 1:  # for zoomed charts only
                continue
            _text(axes, shape, order)
        elif isinstance(shape, Mark):
            _mark(axes, shape, order)
        else:
            _path(axes, shape, order)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    return buffer.getvalue()


def _path(axes: Any, path: Path, order: int) -> None:
    if path.fill is not None:
        edge = "none" if path.stroke is None else light(path.stroke)
        axes.add_patch(
            Polygon(
                path.points,
                closed=True,
                facecolor=light(path.fill),
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
            color=light(path.stroke),
            linewidth=path.width * _UNIT,
            linestyle=style,
            alpha=path.alpha,
            zorder=order,
            solid_joinstyle="round",
            clip_on=False,
        )


def _mark(axes: Any, mark: Mark, order: int) -> None:
    if mark.alpha == 0:
        return
    color = light(mark.role)
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
            Polygon(outline(mark), facecolor=color, linewidth=0, alpha=mark.alpha, zorder=order)
        )


def _text(axes: Any, text: Text, order: int) -> None:
    axes.text(
        *text.at,
        text.text,
        color=light(text.role),
        fontsize=text.size * _UNIT,
        ha=_ALIGN[text.anchor],
        va="center",
        fontweight="bold" if text.bold else "normal",
        rotation=text.turn,
        rotation_mode="anchor",
        parse_math=False,  # a "$" in a name is a character
        zorder=order + 1,
    )
