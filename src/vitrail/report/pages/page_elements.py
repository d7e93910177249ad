"""The building blocks of pages: photographs with marks and maps on them, bars, numbers, tables.

A photograph is stored once and shown many times: figures are vector drawings that refer to it,
so boxes stay sharp, crops cost nothing and a page stays small.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from vitrail.explain.boxes import upsample
from vitrail.report.charts.color_ramps import HEAT, color_levels
from vitrail.report.html import Html, el, join

Floats4 = tuple[float, float, float, float]
_HEAT = 96  # pixels of a side of an activation map in a page

# Below an activation map the photograph loses its color, so that the map alone has one.
GRAY_FILTER = el(
    "svg",
    el("filter", el("feColorMatrix", type="saturate", values="0.1"), id="gray"),
    class_="store",
    aria_hidden="true",
)


def to_data_uri(image: Image.Image) -> str:
    """A picture as text."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def image_from_array(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    """An image [H, W, C] for the eye."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def image_from_tensor(image: Tensor) -> Image.Image:
    """Pixels [C, H, W] from 0 to 1 as a picture."""
    values = (image.clamp(0, 1) * 255).round().to("cpu").permute(1, 2, 0)
    return image_from_array(values.numpy().astype(np.uint8))


def store_photo(name: str, image: Image.Image, size: tuple[int, int]) -> Html:
    """Keep a photograph under a name, in the coordinates of an original of (height, width)."""
    height, width = size
    photo = el("image", id=name, width=width, height=height, preserveAspectRatio="none",
               href=to_data_uri(image))  # fmt: skip
    return el("svg", el("defs", photo), class_="store", aria_hidden="true")


def draw_photo(
    name: str, size: tuple[int, int], label: str, marks: object = None, heat: object = None
) -> Html:
    """A stored photograph with marks on it; `label` is what a screen reader says."""
    photo = el("use", href=f"#{name}", filter="url(#gray)" if heat else None)
    return draw_sheet(size, label, photo, heat, marks)


def draw_sheet(size: tuple[int, int], label: str, *shapes: object) -> Html:
    """Shapes in the coordinates of an image of (height, width)."""
    height, width = size
    return el("svg", el("title", label), *shapes, class_="picture", role="img", aria_label=label,
              viewBox=f"0 0 {width} {height}")  # fmt: skip


def draw_empty_frame(
    size: tuple[int, int],
    boxes: Sequence[Sequence[float]],
    main: Sequence[float] | None,
    label: str,
) -> Html:
    """Where boxes lie in images that are not shown: each one faint, the typical one bright."""
    height, width = size
    canvas = el("rect", class_="canvas", width=width, height=height)
    faint = [_draw_rectangle(box, "faint") for box in boxes]
    return draw_sheet(size, label, canvas, *faint, None if main is None else draw_box(main))


def draw_box(box: Sequence[float]) -> Html:
    """A box, bright on a dark edge so that it is seen on any image."""
    return join([_draw_rectangle(box, "edge"), _draw_rectangle(box, "box")])


def _draw_rectangle(box: Sequence[float], class_: str) -> Html:
    x0, y0, x1, y1 = box
    return el("rect", class_=class_, x=x0, y=y0, width=x1 - x0, height=y1 - y0)


def draw_shade(size: tuple[int, int], clear: Sequence[float]) -> Html | None:
    """Everything but a rectangle in shadow."""
    height, width = size
    x0, y0 = max(0.0, clear[0]), max(0.0, clear[1])
    x1, y1 = min(float(width), clear[2]), min(float(height), clear[3])
    if x0 <= 0 and y0 <= 0 and x1 >= width and y1 >= height:
        return None
    hole = f"M{x0:g} {y0:g}V{y1:g}H{x1:g}V{y0:g}Z"
    return el("path", class_="shade", d=f"M0 0H{width}V{height}H0Z{hole}", fill_rule="evenodd")


def draw_heat(map_: Tensor, extent: Floats4) -> Html:
    """An activation map over the rectangle of the image that the model saw."""
    x0, y0, x1, y1 = extent
    return el("image", x=f"{x0:g}", y=f"{y0:g}", width=f"{x1 - x0:g}", height=f"{y1 - y0:g}",
              preserveAspectRatio="none",
              href=to_data_uri(Image.fromarray(color_heat(map_))))  # fmt: skip


def color_heat(map_: Tensor, side: int = _HEAT) -> npt.NDArray[np.uint8]:
    """A map as colors [side, side, 4]: from its least (clear) to its greatest value (bright)."""
    values = upsample(map_.detach().cpu(), side, side)
    low, high = values.min(), values.max()
    spread = high - low
    scaled = (values - low) / spread if float(spread) > 0 else torch.zeros_like(values)
    level = scaled.clamp(0, 1).numpy()
    colors = color_levels(HEAT, level)
    alpha = np.rint(255 * 0.85 * level**1.2).astype(np.uint8)
    return np.concatenate([colors, alpha[..., None]], axis=-1)


def draw_bar(value: float, largest: float) -> Html:
    """A bar to the right for what speaks for a class, to the left for what speaks against it."""
    share = 0.0 if largest <= 0 else 50 * min(1.0, abs(value) / largest)
    side = "for" if value >= 0 else "against"
    return el("div", el("i", class_=side, style=f"width:{share:.1f}%"), class_="bar",
              aria_hidden="true")  # fmt: skip


def render_rows(heads: Sequence[object], rows: Iterable[object], label: str, class_: str) -> Html:
    """A table of ready rows (`tr` elements) that scrolls by itself; `label` names it."""
    cells = [el("th", head, scope="col") for head in heads]
    table = el(
        "table",
        el("thead", el("tr", *cells)) if cells else None,
        el("tbody", *rows),
        class_=class_ or None,
    )
    return el("div", table, class_="wide", role="region", tabindex="0", aria_label=label)


def format_number(value: float, places: int = 3) -> str:
    """A number with a true minus sign; never minus zero."""
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "\N{MINUS SIGN}")
