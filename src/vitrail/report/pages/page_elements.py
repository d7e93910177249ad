"""The building blocks of the pages of single commands: one file, nothing loaded from elsewhere.

A photograph is stored once and shown many times: figures are vector drawings that refer to it,
so boxes stay sharp, crops cost nothing and a page stays small.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from vitrail.explain.boxes import upsample
from vitrail.report.pages.page_style import STYLE

Floats4 = tuple[float, float, float, float]
_HEAT = 96  # pixels of a side of an activation map in a page
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(title: str, lead: str, body: Sequence[str], style: str = "") -> str:
    """A whole document; `title` is plain text, `lead` and `body` are markup.

    `style` holds rules of this page alone.
    """
    name = escape(title)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{name}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>",
            f'<header><div class="glass" aria-hidden="true"></div><h1>{name}</h1>{lead}</header>',
            f"<main>\n{FILTER}",
            *body,
            "</main>\n</body>\n</html>\n",
        ]
    )


# Below an activation map the photograph loses its color, so that the map alone has one.
FILTER = (
    '<svg class="store" aria-hidden="true"><filter id="gray">'
    '<feColorMatrix type="saturate" values="0.1"/></filter></svg>'
)


def to_data_uri(image: Image.Image) -> str:
    """A picture as text."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def store_photo(name: str, image: Image.Image, size: tuple[int, int]) -> str:
    """Keep a photograph under a name, in the coordinates of an original of (height, width)."""
    height, width = size
    return (
        f'<svg class="store" aria-hidden="true"><defs><image id="{name}" width="{width}" '
        f'height="{height}" preserveAspectRatio="none" href="{to_data_uri(image)}"/></defs></svg>'
    )


def draw_photo(
    name: str, size: tuple[int, int], label: str, marks: str = "", heat: str = ""
) -> str:
    """A stored photograph with marks on it; `label` is what a screen reader says."""
    height, width = size
    text = escape(label)
    gray = ' filter="url(#gray)"' if heat else ""
    return (
        f'<svg class="picture" role="img" aria-label="{text}" viewBox="0 0 {width} {height}">'
        f'<title>{text}</title><use href="#{name}"{gray}/>{heat}{marks}</svg>'
    )


def draw_box(box: Sequence[float], number: int | None = None) -> str:
    """A box, bright on a dark edge so that it is seen on any image; with a number in its corner."""
    x0, y0, x1, y1 = box
    place = f'x="{x0}" y="{y0}" width="{x1 - x0}" height="{y1 - y0}"'
    marks = f'<rect class="edge" {place}/><rect class="box" {place}/>'
    if number is not None:
        marks += f'<text class="number" x="{x0}" y="{y0}">{number}</text>'
    return marks


def draw_shade(size: tuple[int, int], clear: Sequence[float]) -> str:
    """Everything but a rectangle in shadow."""
    height, width = size
    x0, y0 = max(0.0, clear[0]), max(0.0, clear[1])
    x1, y1 = min(float(width), clear[2]), min(float(height), clear[3])
    if x0 <= 0 and y0 <= 0 and x1 >= width and y1 >= height:
        return ""
    hole = f"M{x0:g} {y0:g}V{y1:g}H{x1:g}V{y0:g}Z"
    return f'<path class="shade" d="M0 0H{width}V{height}H0Z{hole}" fill-rule="evenodd"/>'


def draw_heat(map_: Tensor, extent: Floats4) -> str:
    """An activation map over the rectangle of the image that the model saw."""
    x0, y0, x1, y1 = extent
    return (
        f'<image x="{x0:g}" y="{y0:g}" width="{x1 - x0:g}" height="{y1 - y0:g}" '
        f'preserveAspectRatio="none" href="{to_data_uri(Image.fromarray(color_heat(map_)))}"/>'
    )


def color_heat(map_: Tensor, side: int = _HEAT) -> npt.NDArray[np.uint8]:
    """A map as colors [side, side, 4]: from its least (clear) to its greatest value (bright)."""
    values = upsample(map_.detach().cpu(), side, side)
    low, high = values.min(), values.max()
    spread = high - low
    scaled = (values - low) / spread if float(spread) > 0 else torch.zeros_like(values)
    level = scaled.clamp(0, 1).numpy()
    colors = colormaps["inferno"](0.25 + 0.7 * level)
    colors[..., 3] = 0.85 * level**1.2
    pixels: npt.NDArray[np.uint8] = np.rint(colors * 255).astype(np.uint8)
    return pixels


def draw_bar(value: float, largest: float) -> str:
    """A bar to the right for what speaks for a class, to the left for what speaks against it."""
    share = 0.0 if largest <= 0 else 50 * min(1.0, abs(value) / largest)
    side = "for" if value >= 0 else "against"
    inner = f'<i class="{side}" style="width:{share:.1f}%"></i>'
    return f'<div class="bar" aria-hidden="true">{inner}</div>'


def format_number(value: float, places: int = 3) -> str:
    """A number with a true minus sign; never minus zero."""
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "\N{MINUS SIGN}")
