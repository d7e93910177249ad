"""The page of a preview: original, heatmap, mask and shared image, site by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.engine.release_summary import format_size as readable
from vitrail.release.image_protection import describe_remark_guarantee
from vitrail.report.charts.color_ramps import SIGNED, color_levels
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import image_from_array, render_rows, to_data_uri
from vitrail.report.preview_sharing import Preview

COLUMNS = ("class", "original", "heatmap", "mask", "shared")


def render_preview_page(previews: Sequence[Preview], title: str, rounds: int, images: int) -> str:
    """One document; `images` are shown of each site, `rounds` is how long each trained alone."""
    trained = (
        f"For this page each site trained alone for {rounds} round{'s' * (rounds != 1)}; "
        if rounds
        else "For this page the model is untrained; "
    )
    sentence = (
        "This is what would leave each site, made up without anything leaving it. "
        f"{trained}the federation's model will choose other pixels, but the same is done to them."
    )
    lead = join([el("p", title, class_="soft"), el("p", sentence)])
    return render_page("What would be shared", lead, [_render_site(p, images) for p in previews])


def _render_site(preview: Preview, most: int) -> Html:
    grouped = len(preview.shared.targets) != len(preview.chosen.labels)
    rows = [_render_row(preview, at, grouped) for at in choose_preview_rows(preview, most)]
    table = render_rows(COLUMNS[: 4 if grouped else 5], rows, f"Images of {preview.site}", "")
    means = _render_means(preview, most) if grouped else None
    facts = el("ul", *(el("li", text) for text in list_preview_facts(preview)))
    return el("section", el("h2", preview.site), facts, table, means)


def list_preview_facts(preview: Preview) -> list[str]:
    """What would leave a site in numbers, and under which guarantee."""
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
    return facts


def _render_row(preview: Preview, at: int, grouped: bool) -> Html:
    label = int(preview.chosen.labels[at])
    told = None
    cells = [
        (preview.images[at], "original"),
        (_color_heat(preview.chosen.heat[at]), "heatmap"),
        (_make_gray(preview.chosen.mask[at]), "mask"),
    ]
    if not grouped:
        cells.append((_to_bytes(preview.shared.pixels[at]), "what would be shared"))
        other = int(preview.shared.targets[at])
        if other != label:
            told = el("small", f"told as {preview.classes[other]}")
    subject = f"an image of {preview.classes[label]}"
    pictures = [
        el("td", _render_image(pixels, f"{kind} of {subject}"), class_="see")
        for pixels, kind in cells
    ]
    return el("tr", el("th", preview.classes[label], told, scope="row"), *pictures)


def render_preview_pictures(preview: Preview, at: int) -> Html:
    """An image as it is, beside what would be shared of it: the protected picture, or, where means
    over several images are shared, what of it goes into one."""
    name = preview.classes[int(preview.chosen.labels[at])]
    is_alone = len(preview.shared.targets) == len(preview.chosen.labels)
    shared = preview.shared.pixels[at] if is_alone else preview.chosen.pixels[at]
    return el(
        "span",
        _render_image(preview.images[at], f"original of an image of {name}"),
        _render_image(_to_bytes(shared), f"what would be shared of an image of {name}"),
        class_="pair",
    )


def _render_means(preview: Preview, most: int) -> Html:
    """Shared pictures that stand for several images have no row of their own."""
    shown = []
    for pixels, label in list(zip(preview.shared.pixels, preview.shared.targets))[:most]:
        name = preview.classes[int(label)]
        picture = _render_image(_to_bytes(pixels), f"a mean told as {name}")
        shown.append(el("li", picture, el("small", name)))
    if not shown:
        empty = "No group of images of one class is large enough: nothing would be shared."
        return el("p", empty)
    return join([el("h3", "What would be shared"), el("ul", *shown, class_="units")])


def _render_image(pixels: npt.NDArray[np.uint8], label: str) -> Html:
    height, width = pixels.shape[:2]
    source = to_data_uri(image_from_array(pixels))
    return el("img", class_="pixels", alt=label, width=width, height=height, src=source)


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
    return color_levels(SIGNED, 0.5 + 0.5 * scaled.numpy())


def choose_preview_rows(preview: Preview, most: int) -> list[int]:
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
