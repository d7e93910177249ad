"""A drawing as a list of shapes, which becomes inline SVG, a standalone SVG file, or a PNG.

One list for all three, so that a figure in a paper is the figure in the report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, TypeAlias

from PIL import Image

from vitrail.report.charts.palette import get_light_color
from vitrail.report.html import Html
from vitrail.report.pages.page_elements import to_data_uri

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
Sign = Literal["circle", "ring", "square", "triangle", "diamond"]
# What zooming does to a shape: areas are scaled, points move and keep their size, columns and rows
# move along one axis, ticks are made anew, and what is only right of the whole is hidden.
Zoom = Literal["", "area", "point", "column", "row", "x-tick", "y-tick", "whole"]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"


@dataclass(frozen=True)
class Path:
    """A line through points, or an area if it has a `fill`; `series` lets it be picked out."""

    points: tuple[Point, ...]
    stroke: str | None = None
    width: float = 1.0
    dash: tuple[float, ...] = ()
    fill: str | None = None
    alpha: float = 1.0
    series: str = ""
    tip: str = ""
    zoom: Zoom = ""


@dataclass(frozen=True)
class Mark:
    """A sign at a point; `alpha` 0 makes it a place to hover over."""

    at: Point
    radius: float
    role: str
    sign: Sign = "circle"
    alpha: float = 1.0
    series: str = ""
    tip: str = ""
    zoom: Zoom = ""


@dataclass(frozen=True)
class Text:
    """Words; `turn` is in degrees, against the clock; below `min_zoom` they are not shown."""

    at: Point
    text: str
    role: str = "ink"
    size: float = 12.0
    anchor: Anchor = "start"
    bold: bool = False
    turn: float = 0.0
    series: str = ""
    tip: str = ""
    zoom: Zoom = ""
    min_zoom: float = 1.0


@dataclass(frozen=True)
class Photo:
    """A picture, its upper left corner at a point; pixels that are to be seen are not `smooth`."""

    at: Point
    width: float
    height: float
    image: Image.Image
    label: str = ""
    smooth: bool = True


Shape: TypeAlias = Path | Mark | Text | Photo


def line(a: Point, b: Point, role: str = "line", width: float = 1.0, **more: object) -> Path:
    """A straight line."""
    return Path((a, b), stroke=role, width=width, **more)  # type: ignore[arg-type]


def box(x: float, y: float, width: float, height: float, fill: str, **more: object) -> Path:
    """A rectangle."""
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    return Path(corners, fill=fill, **more)  # type: ignore[arg-type]


def compute_outline(mark: Mark) -> tuple[Point, ...]:
    """The corners of a sign that has corners."""
    (x, y), r = mark.at, mark.radius
    if mark.sign == "square":
        s = 0.89 * r  # as much ink as the circle
        return (x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)
    if mark.sign == "triangle":
        return (x, y - 1.2 * r), (x + 1.1 * r, y + 0.8 * r), (x - 1.1 * r, y + 0.8 * r)
    return (x, y - 1.25 * r), (x + 1.25 * r, y), (x, y + 1.25 * r), (x - 1.25 * r, y)


@dataclass(frozen=True)
class Plot:
    """What can be zoomed into: left, top, right and bottom, and the values at the ends of axes."""

    box: tuple[float, float, float, float]
    x: tuple[float, float] | None = None
    y: tuple[float, float] | None = None
    share: bool = False  # values of y are written in percent

    def to_json(self) -> str:
        """For the script."""
        box = [round(side, 2) for side in self.box]
        return json.dumps({"box": box, "x": self.x, "y": self.y, "share": self.share})


@dataclass(frozen=True)
class Drawing:
    """Shapes on a sheet of `width` x `height` units; `title` and `about` say what is seen."""

    width: float
    height: float
    title: str
    about: str = ""
    shapes: Sequence[Shape] = field(default=())
    plot: Plot | None = None

    def to_inline_svg(self, class_: str = "") -> Html:
        """For the page: colors by role, so that they follow light and dark."""
        label = escape(f"{self.title}. {self.about}" if self.about else self.title)
        plot = "" if self.plot is None else f' data-plot="{escape(self.plot.to_json())}"'
        head = (
            f'<svg class="chart {class_}" role="img" aria-label="{label}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}"{plot}>'
        )
        return Html(
            head + "".join(_render_shape(shape, page=True) for shape in self.shapes) + "</svg>"
        )

    def to_svg_file(self) -> str:
        """A file of its own, in the colors of paper."""
        about = f"<desc>{escape(self.about)}</desc>" if self.about else ""
        body = "".join(_render_shape(shape, page=False) for shape in self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" '
            f'height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'font-family="{escape(FONT)}"><title>{escape(self.title)}</title>{about}'
            f'<rect width="100%" height="100%" fill="{get_light_color("card")}"/>{body}</svg>\n'
        )


def _paint(kind: Literal["fill", "stroke"], role: str | None, page: bool) -> tuple[str, str]:
    """The class and the attribute that paint a shape; one of them is empty."""
    if role is None:
        return "", f' {kind}="none"'
    return (f"{kind[0]}-{role}", "") if page else ("", f' {kind}="{get_light_color(role)}"')


def _write_common_attributes(classes: Sequence[str], shape: Path | Mark | Text, page: bool) -> str:
    names = [name for name in (*classes, "tip" if page and shape.tip else "") if name]
    attributes = f' class="{" ".join(names)}"' if names else ""
    if page and shape.series:
        attributes += f' data-series="{escape(shape.series)}"'
    if page and shape.tip:
        attributes += f' data-tip="{escape(shape.tip)}"'
    if page and shape.zoom:
        attributes += f' data-zoom="{shape.zoom}"'
    return attributes


def _render_shape(shape: Shape, page: bool) -> str:
    if isinstance(shape, Text):
        return _render_text(shape, page) if page or shape.min_zoom <= 1 else ""
    if isinstance(shape, Mark):
        if not page and shape.alpha == 0:
            return ""
        if shape.sign in ("square", "triangle", "diamond"):
            drawn = Path(
                compute_outline(shape),
                fill=shape.role,
                alpha=shape.alpha,
                series=shape.series,
                tip=shape.tip,
                zoom=shape.zoom,
            )
            return _render_path(drawn, page)
        return _render_circle(shape, page)
    if isinstance(shape, Photo):
        return _render_photo(shape)
    return _render_path(shape, page)


def _render_photo(photo: Photo) -> str:
    (x, y), style = photo.at, "" if photo.smooth else ' style="image-rendering:pixelated"'
    return (
        f'<image x="{x:.1f}" y="{y:.1f}" width="{photo.width:.1f}" height="{photo.height:.1f}" '
        f'preserveAspectRatio="none" href="{to_data_uri(photo.image)}"{style}>'
        f"<title>{escape(photo.label)}</title></image>"
    )


def _render_circle(mark: Mark, page: bool) -> str:
    kind: Literal["fill", "stroke"] = "stroke" if mark.sign == "ring" else "fill"
    name, paint = _paint(kind, mark.role, page)
    style = ' fill="none" stroke-width="2"' if kind == "stroke" else ""
    faint = f' opacity="{mark.alpha:g}"' if mark.alpha < 1 else ""
    x, y = mark.at
    common = _write_common_attributes([name], mark, page)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{mark.radius:.1f}"{common}{paint}{style}{faint}/>'


def _render_path(path: Path, page: bool) -> str:
    fill_name, fill = _paint("fill", path.fill, page)
    stroke_name, stroke = _paint("stroke", path.stroke, page) if path.stroke else ("", "")
    places = "L".join(f"{x:.1f} {y:.1f}" for x, y in path.points)
    closed = "Z" if path.fill is not None else ""
    style = f' stroke-width="{path.width:g}" stroke-linejoin="round"' if path.stroke else ""
    if path.dash:
        style += f' stroke-dasharray="{" ".join(f"{d:g}" for d in path.dash)}"'
    if path.alpha < 1:
        style += f' opacity="{path.alpha:.2f}"'
    common = _write_common_attributes([fill_name, stroke_name], path, page)
    return f'<path d="M{places}{closed}"{common}{fill}{stroke}{style}/>'


def _render_text(text: Text, page: bool) -> str:
    name, paint = _paint("fill", text.role, page)
    x, y = text.at
    turn = f' transform="rotate({-text.turn:g} {x:.1f} {y:.1f})"' if text.turn else ""
    bold = ' font-weight="650"' if text.bold else ""
    anchor = f' text-anchor="{text.anchor}"' if text.anchor != "start" else ""
    common = _write_common_attributes([name], text, page)
    if text.min_zoom > 1:
        common += f' data-above="{text.min_zoom:.3g}" style="display:none"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{text.size:g}" dominant-baseline="central"'
        f"{common}{paint}{anchor}{bold}{turn}>{escape(text.text)}</text>"
    )
