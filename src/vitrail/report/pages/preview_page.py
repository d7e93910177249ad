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

from vitrail.engine.release_summary import format_size as readable
from vitrail.release.image_protection import describe_remark_guarantee
from vitrail.report.pages.page_elements import render_page, to_data_uri
from vitrail.report.preview_sharing import Preview

_SIDE = 132  # pixels of a picture on the page
_STYLE = (
    ".pixels{width:132px;height:auto;image-rendering:pixelated;display:block;border-radius:6px}"
    "td.told{width:150px;overflow-wrap:anywhere}.facts{margin:10px 0 0;padding-left:20px}"
)
COLUMNS = ("class", "original", "heatmap", "mask", "shared")


def render_preview_page(previews: Sequence[Preview], title: str, rounds: int, images: int) -> str:
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
    return render_page(
        "What would be shared",
        lead,
        [_render_site(preview, images) for preview in previews],
        _STYLE,
    )


def _render_site(preview: Preview, most: int) -> str:
    rows = _choose_rows(preview, most)
    grouped = len(preview.shared.targets) != len(preview.chosen.labels)
    body = "".join(_render_row(preview, at, grouped) for at in rows)
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS[: 4 if grouped else 5])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    means = _render_means(preview, most) if grouped else ""
    return (
        f"<section><h2>{escape(preview.site)}</h2>{_render_facts(preview)}"
        f'<div class="wide">{table}</div>{means}</section>'
    )


def _render_facts(preview: Preview) -> str:
    line = preview.shared.line
    made_from = f" pictures made from {len(preview.images):,}"
    removed = 1 - float(preview.chosen.mask.gt(0).double().mean())
    facts = [
        f"{line['images']:,}{'' if line['images'] == len(preview.images) else made_from} "
        f"of {preview.held:,} images",
        f"{readable(line['bytes'])}, sent once",
        f"{removed:.0%} of the pixels removed, noise of deviation {line['sigma']:.3g} on pixels "
        "from 0 to 1",
        describe_remark_guarantee(line),
        f"this covers {line['covers']}",
    ]
    moved = (
        int((preview.shared.targets != preview.chosen.labels).sum())
        if len(preview.shared.targets) == len(preview.chosen.labels)
        else 0
    )
    if moved:
        facts.append(f"{moved} labels changed by randomized response")
    counts = Counter(preview.chosen.labels.tolist())
    facts.append(
        ", ".join(f"{name} {counts[at]}" for at, name in enumerate(preview.classes) if counts[at])
    )
    items = "".join(f"<li>{escape(text)}</li>" for text in facts)
    return f'<ul class="facts">{items}</ul>'


def _render_row(preview: Preview, at: int, grouped: bool) -> str:
    label = int(preview.chosen.labels[at])
    name = escape(preview.classes[label])
    text = name
    cells = [
        (preview.images[at], "original"),
        (_color_heat(preview.chosen.heat[at]), "heatmap"),
        (_make_gray(preview.chosen.mask[at]), "mask"),
    ]
    if not grouped:
        cells.append((_to_bytes(preview.shared.pixels[at]), "what would be shared"))
        other = int(preview.shared.targets[at])
        if other != label:
            text += f"<small>told as {escape(preview.classes[other])}</small>"
    subject = f"an image of {preview.classes[label]}"
    pictures = "".join(
        f'<td class="see">{_render_image(pixels, f"{kind} of {subject}")}</td>'
        for pixels, kind in cells
    )
    return f'<tr><td class="told">{text}</td>{pictures}</tr>'


def _render_means(preview: Preview, most: int) -> str:
    """Shared pictures that stand for several images have no row of their own."""
    shown = "".join(
        f"<li>{_render_image(_to_bytes(pixels), f'a mean told as {preview.classes[int(label)]}')}"
        f"<small>{escape(preview.classes[int(label)])}</small></li>"
        for pixels, label in list(zip(preview.shared.pixels, preview.shared.targets))[:most]
    )
    empty = "<p>No group of images of one class is large enough: nothing would be shared.</p>"
    return f'<h3>What would be shared</h3><ul class="units">{shown}</ul>' if shown else empty


def _render_image(pixels: npt.NDArray[np.uint8], label: str) -> str:
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    height, width = pixels.shape[:2]
    return (
        f'<img class="pixels" alt="{escape(label)}" width="{width}" height="{height}" '
        f'src="{to_data_uri(image)}">'
    )


def _to_bytes(pixels: Tensor) -> npt.NDArray[np.uint8]:
    """Pixels in [0, 1] as bytes; what noise threw outside is cut, for the eye only."""
    values: npt.NDArray[np.uint8] = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return values


def _make_gray(mask: Tensor) -> npt.NDArray[np.uint8]:
    return _to_bytes(mask[..., None])


def _color_heat(heat: Tensor) -> npt.NDArray[np.uint8]:
    """Red speaks for the class, blue against it; the largest value has the full color."""
    top = float(heat.abs().max())
    scaled = heat / top if top > 0 else heat
    colors = colormaps["RdBu_r"](0.5 + 0.5 * scaled.numpy())
    values: npt.NDArray[np.uint8] = np.rint(colors[..., :3] * 255).astype(np.uint8)
    return values


def _choose_rows(preview: Preview, most: int) -> list[int]:
    """A few images, class by class in turn, so that each class is seen."""
    by_class: dict[int, list[int]] = {}
    for at, label in enumerate(preview.chosen.labels.tolist()):
        by_class.setdefault(label, []).append(at)
    chosen: list[int] = []
    depth = 0
    while len(chosen) < min(most, len(preview.images)):
        chosen += [rows[depth] for _, rows in sorted(by_class.items()) if depth < len(rows)]
        depth += 1
    return chosen[:most]
