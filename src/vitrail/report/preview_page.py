"""The page of a preview: original, heatmap, mask and shared image, site by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from vitrail.engine.shared import size as readable
from vitrail.release.images import promised
from vitrail.report.evidence_html import data_uri, page
from vitrail.report.preview import Preview

_SIDE = 132  # pixels of a picture on the page
_STYLE = (
    ".pixels{width:132px;height:auto;image-rendering:pixelated;display:block;border-radius:6px}"
    "td.told{width:150px;overflow-wrap:anywhere}.facts{margin:10px 0 0;padding-left:20px}"
)
COLUMNS = ("class", "original", "heatmap", "mask", "shared")


def preview_page(found: Sequence[Preview], title: str, rounds: int, images: int) -> str:
    """One document; `images` are shown of each site, `rounds` is how long each trained alone."""
    lead = (
        f'<p class="soft">{escape(title)}</p><p>This is what would leave each site, made up '
        "without anything leaving it. "
        + (
            f"For this page each site trained alone for {rounds} round{'s' * (rounds != 1)}; "
            if rounds
            else "For this page the model is untrained; "
        )
        + "the federation's model will choose other pixels, but the same is done to them.</p>"
    )
    return page("What would be shared", lead, [_section(one, images) for one in found], _STYLE)


def _section(one: Preview, most: int) -> str:
    rows = _spread(one, most)
    grouped = len(one.shared.targets) != len(one.chosen.labels)
    body = "".join(_row(one, at, grouped) for at in rows)
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS[: 4 if grouped else 5])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f"<section><h2>{escape(one.site)}</h2>{_facts(one)}"
        f'<div class="wide">{table}</div>{_means(one, most) if grouped else ""}</section>'
    )


def _facts(one: Preview) -> str:
    line = one.shared.line
    told = [
        f"{line['images']:,} of {one.held:,} images"
        if line["images"] == len(one.images)
        else f"{line['images']:,} pictures made from {len(one.images):,} of {one.held:,} images",
        f"{readable(line['bytes'])}, sent once",
        f"{1 - float(one.chosen.mask.gt(0).double().mean()):.0%} of the pixels removed, noise of "
        f"deviation {line['sigma']:.3g} on pixels from 0 to 1",
        promised(line),
        f"this covers {line['covers']}",
    ]
    moved = (
        int((one.shared.targets != one.chosen.labels).sum())
        if len(one.shared.targets) == len(one.chosen.labels)
        else 0
    )
    if moved:
        told.append(f"{moved} labels changed by randomized response")
    counts = Counter(one.chosen.labels.tolist())
    told.append(
        ", ".join(f"{name} {counts[at]}" for at, name in enumerate(one.classes) if counts[at])
    )
    items = "".join(f"<li>{escape(text)}</li>" for text in told)
    return f'<ul class="facts">{items}</ul>'


def _row(one: Preview, at: int, grouped: bool) -> str:
    label = int(one.chosen.labels[at])
    name = escape(one.classes[label])
    told = name
    cells = [
        (one.images[at], "original"),
        (_hot(one.chosen.heat[at]), "heatmap"),
        (_gray(one.chosen.mask[at]), "mask"),
    ]
    if not grouped:
        cells.append((_seen(one.shared.pixels[at]), "what would be shared"))
        other = int(one.shared.targets[at])
        if other != label:
            told += f"<small>told as {escape(one.classes[other])}</small>"
    pictures = "".join(
        f'<td class="see">{_image(pixels, f"{what} of an image of {one.classes[label]}")}</td>'
        for pixels, what in cells
    )
    return f'<tr><td class="told">{told}</td>{pictures}</tr>'


def _means(one: Preview, most: int) -> str:
    """Shared pictures that stand for several images have no row of their own."""
    shown = "".join(
        f"<li>{_image(_seen(pixels), f'a mean told as {one.classes[int(label)]}')}"
        f"<small>{escape(one.classes[int(label)])}</small></li>"
        for pixels, label in list(zip(one.shared.pixels, one.shared.targets))[:most]
    )
    empty = "<p>No group of images of one class is large enough: nothing would be shared.</p>"
    return f'<h3>What would be shared</h3><ul class="units">{shown}</ul>' if shown else empty


def _image(pixels: npt.NDArray[np.uint8], label: str) -> str:
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    height, width = pixels.shape[:2]
    return (
        f'<img class="pixels" alt="{escape(label)}" width="{width}" height="{height}" '
        f'src="{data_uri(image)}">'
    )


def _seen(pixels: Tensor) -> npt.NDArray[np.uint8]:
    """Pixels in [0, 1] as bytes; what noise threw outside is cut, for the eye only."""
    found: npt.NDArray[np.uint8] = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return found


def _gray(mask: Tensor) -> npt.NDArray[np.uint8]:
    return _seen(mask[..., None])


def _hot(heat: Tensor) -> npt.NDArray[np.uint8]:
    """Red speaks for the class, blue against it; the largest value has the full color."""
    top = float(heat.abs().max())
    scaled = heat / top if top > 0 else heat
    colors = colormaps["RdBu_r"](0.5 + 0.5 * scaled.numpy())
    found: npt.NDArray[np.uint8] = np.rint(colors[..., :3] * 255).astype(np.uint8)
    return found


def _spread(one: Preview, most: int) -> list[int]:
    """A few images, class by class in turn, so that each class is seen."""
    by_class: dict[int, list[int]] = {}
    for at, label in enumerate(one.chosen.labels.tolist()):
        by_class.setdefault(label, []).append(at)
    found: list[int] = []
    depth = 0
    while len(found) < min(most, len(one.images)):
        found += [rows[depth] for _, rows in sorted(by_class.items()) if depth < len(rows)]
        depth += 1
    return found[:most]
