"""What is shared, and what a denoiser makes of it, in pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.tables.figure_style import FONT
from vitrail.files import make_folder_name, write_bytes
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el
from vitrail.report.pages.attack_page import render_line
from vitrail.report.pages.page_elements import image_from_tensor, render_rows

Shown = tuple[Mapping[str, Tensor], Mapping[str, Any]]  # pictures by name, and whose they are
_FIGURE = 4  # images of the figure
TRUTH = "truth"


def render_price_page(
    head: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[Shown]
) -> str:
    """One HTML document: the table, then originals, shared and denoised images."""
    body: list[Html | None] = [el("section", el("h2", "Figures"), _render_table(head, rows))]
    for name, pictures in _group_pictures(shown).items():
        lines = [
            render_line(title, images.clamp(0, 1), [""] * len(images))
            for title, images in pictures.items()
        ]
        body.append(el("section", el("h2", name), render_rows((), lines, "Pictures", "loot")))
    lead = el("p", "It shows the sites' images: it is for those who may see them.", class_="soft")
    return render_page("The price of sharing images", lead, body)


def _render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """What is shared names a row; luck would find 1 image in hundreds and an area of 0.5."""
    lines = [
        el(
            "tr",
            *(
                el("th", cell, scope="row") if at == 1 else el("td", cell)
                for at, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    return render_rows(head, lines, "Figures", "numbers")


def _group_pictures(shown: Sequence[Shown]) -> dict[str, dict[str, Tensor]]:
    """The pictures of each kind of images in one order: the originals first."""
    groups: dict[str, dict[str, Tensor]] = {}
    for tensors, meta in shown:
        pictures = groups.setdefault(str(meta["data"]), {"original": tensors[TRUTH]})
        for kind in meta["kinds"]:
            pictures[f"{kind}: shared"] = tensors[f"{kind}/as shared"]
            pictures[f"{kind}: denoised"] = tensors[f"{kind}/denoise"]
    return groups


def draw_price_figures(shown: Sequence[Shown], folder: Path) -> None:
    """A figure for each kind of images, `price-KIND.png`."""
    for name, pictures in _group_pictures(shown).items():
        _draw_pictures(pictures, folder / f"price-{make_folder_name(name)}.png")


def _draw_pictures(pictures: Mapping[str, Tensor], path: Path) -> None:
    """Images across, what became of them down."""
    from matplotlib.figure import Figure  # for figures only

    figure = Figure(figsize=(1.9 + 0.9 * _FIGURE, 0.9 * len(pictures)), dpi=80)
    axes = figure.subplots(len(pictures), _FIGURE, squeeze=False)
    for down, (title, images) in enumerate(pictures.items()):
        for across, image in zip(range(_FIGURE), images):
            cell = axes[down][across]
            drawn = image_from_tensor(image)
            cell.imshow(drawn, cmap="gray" if drawn.mode == "L" else None, vmin=0, vmax=255)
            cell.set_xticks([])
            cell.set_yticks([])
            for side in cell.spines.values():
                side.set_visible(False)
        axes[down][0].set_ylabel(
            title.replace(": ", "\n"), rotation=0, ha="right", va="center", fontsize=FONT
        )
    figure.subplots_adjust(
        left=0.36, right=0.995, top=0.995, bottom=0.005, wspace=0.05, hspace=0.05
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_bytes(path, buffer.getvalue())
