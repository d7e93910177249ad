"""What is shared, and what a denoiser makes of it, in pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from vitrail.files import write_bytes
from vitrail.report.curves import FONT
from vitrail.report.evidence_html import page
from vitrail.report.leakage_page import STYLE, line, picture

Shown = tuple[Mapping[str, Tensor], Mapping[str, Any]]  # pictures by name, and whose they are
_FIGURE = 4  # images of the figure
TRUTH = "truth"


def price_page(table: str, shown: Sequence[Shown]) -> str:
    """One HTML document: the table as text, then originals, shared and denoised images."""
    body = [f"<section><h2>Figures</h2><pre>{escape(table)}</pre></section>"]
    for name, pictures in _together(shown).items():
        rows = [
            line(title, images.clamp(0, 1), [""] * len(images))
            for title, images in pictures.items()
        ]
        drawn = f'<table class="loot"><tbody>{"".join(rows)}</tbody></table>'
        group = f'<div class="wide" tabindex="0" role="group" aria-label="Pictures">{drawn}</div>'
        body.append(f"<section><h2>{escape(name)}</h2>{group}</section>")
    lead = '<p class="soft">It shows the sites\' images: it is for those who may see them.</p>'
    made = page("The price of sharing images", lead, body)
    return made.replace("</style>", f"{STYLE}</style>", 1)


def _together(shown: Sequence[Shown]) -> dict[str, dict[str, Tensor]]:
    """The pictures of each kind of images in one order: the originals first."""
    found: dict[str, dict[str, Tensor]] = {}
    for tensors, meta in shown:
        own = found.setdefault(str(meta["data"]), {"original": tensors[TRUTH]})
        for kind in meta["kinds"]:
            own[f"{kind}: shared"] = tensors[f"{kind}/as shared"]
            own[f"{kind}: denoised"] = tensors[f"{kind}/denoise"]
    return found


def price_figure(shown: Sequence[Shown], path: Path) -> None:
    """The embedded birds as a figure for a page: images across, what became of them down."""
    birds = _together([one for one in shown if one[1]["data"] == "birds"]).get("birds")
    if birds is None:
        return
    figure = Figure(figsize=(1.9 + 0.9 * _FIGURE, 0.9 * len(birds)), dpi=80)
    axes = figure.subplots(len(birds), _FIGURE, squeeze=False)
    for down, (title, images) in enumerate(birds.items()):
        for across, image in zip(range(_FIGURE), images):
            cell = axes[down][across]
            cell.imshow(picture(image))
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
