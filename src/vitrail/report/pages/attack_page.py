"""Pages of stolen images: the original, then what each attack made of it, with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image
from torch import Tensor

from vitrail.attack.findings import Row
from vitrail.attack.run_attacks import AttackResults
from vitrail.report.pages.attack_table import HEADINGS, format_cells
from vitrail.report.pages.page_elements import render_page, to_data_uri

ATTACK_STYLE = """
table.loot{width:auto}
table.loot td{padding:6px;text-align:center;font-size:13px;font-variant-numeric:tabular-nums;
border-bottom:0;vertical-align:top}
table.loot th[scope=row]{text-align:left;vertical-align:middle;min-width:120px;
overflow-wrap:anywhere}
table.loot img{width:88px;height:88px;display:block;border-radius:4px;image-rendering:pixelated;
background:var(--quiet)}
img.drawn{max-width:100%;height:auto;background:#fff;border-radius:4px}
table.figures td{font-variant-numeric:tabular-nums;font-size:15px;padding:7px 8px}
table.figures th[scope=row]{vertical-align:middle;text-align:left;font-size:15px}
table.figures tr.reference td{color:var(--soft)}
"""
_MOST = 16  # images a page shows side by side


def render_attack_page(results: AttackResults) -> str:
    """One HTML document for one run."""
    lead = (
        f'<p class="soft">{escape(results.run.name)} · {len(results.truth)} images · '
        "what a curious server gets out of exactly what was released</p>"
    )
    body = []
    if results.rows:
        body = [
            f"<section><h2>Pictures</h2>{render_pictures(results.truth, results.rows)}</section>",
            f"<section><h2>Figures</h2>{render_metrics(results.rows)}"
            "<p>The first two rows are no attacks: another image of the same data, and the mean "
            "image. An attack that does not beat them found nothing.</p></section>",
        ]
    items = "".join(f"<li>{escape(line)}</li>" for line in results.lines())
    body.append(f"<section><h2>What the attacker knows and found</h2><ul>{items}</ul></section>")
    page = render_page(f"Attacks on {results.run.name}", lead, body)
    return page.replace("</style>", f"{ATTACK_STYLE}</style>", 1)


def render_pictures(truth: Tensor, rows: Sequence[Row], names: Sequence[str] | None = None) -> str:
    """A row of originals, then one row of pictures for each row of figures."""
    shown = min(_MOST, len(truth))
    lines = [render_line("original", truth[:shown], ["" for _ in range(shown)])]
    for number, row in enumerate(rows):
        if row.images is None or len(row.images) < shown:
            continue
        name = names[number] if names else (f"{row.name} {row.note}" if row.note else row.name)
        captions = [f"{s.psnr:.1f} dB" for s in row.scores[:shown]]
        lines.append(render_line(name, row.images[:shown], captions))
    remainder = (
        "" if shown == len(truth) else f'<p class="soft">{len(truth) - shown} more not shown</p>'
    )
    table = f'<table class="loot"><tbody>{"".join(lines)}</tbody></table>'
    region = f'<div class="wide" tabindex="0" role="group" aria-label="Pictures">{table}</div>'
    return f"{region}{remainder}"


def render_line(name: str, images: Tensor, captions: Sequence[str]) -> str:
    """A row of pictures, each with a few words below it."""
    cells = "".join(
        f'<td><img src="{to_data_uri(image_from_tensor(image))}" '
        f'alt="{escape(name)}, image {at + 1}{f", {text}" if text else ""}">{text}</td>'
        for at, (image, text) in enumerate(zip(images, captions, strict=True))
    )
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'


def image_from_tensor(image: Tensor) -> Image.Image:
    """Pixels [C, H, W] from 0 to 1 as a picture."""
    values = (image.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy().astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)


def render_metrics(rows: Sequence[Row]) -> str:
    """The table of figures as markup."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEADINGS)
    lines = []
    for row in rows:
        kind = ' class="reference"' if row.threat is None else ""
        lines.append(
            f"<tr{kind}>{''.join(f'<td>{escape(c)}</td>' for c in format_cells(row))}</tr>"
        )
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="Figures">'
        f'<table class="figures"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
