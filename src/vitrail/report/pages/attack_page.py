"""Pages of stolen images: the original, then what each attack made of it, with its figures."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from vitrail.attack.findings import Row
from vitrail.attack.run_attacks import AttackResults
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el, join
from vitrail.report.pages.attack_table import HEADINGS, format_cells
from vitrail.report.pages.page_elements import image_from_tensor, render_rows, to_data_uri

_MOST = 16  # images a page shows side by side


def render_attack_page(results: AttackResults) -> str:
    """One HTML document for one run."""
    about = "what a curious server gets out of exactly what was released"
    lead = el("p", f"{results.run.name} · {len(results.truth)} images · {about}", class_="soft")
    body: list[Html | None] = []
    if results.rows:
        note = (
            "The first two rows are no attacks: another image of the same data, and the mean "
            "image. An attack that does not beat them found nothing."
        )
        body = [
            el("section", el("h2", "Pictures"), render_pictures(results.truth, results.rows)),
            el("section", el("h2", "Figures"), render_metrics(results.rows), el("p", note)),
        ]
    items = [el("li", line) for line in results.lines()]
    body.append(el("section", el("h2", "What the attacker knows and found"), el("ul", *items)))
    return render_page(f"Attacks on {results.run.name}", lead, body)


def render_pictures(truth: Tensor, rows: Sequence[Row], names: Sequence[str] | None = None) -> Html:
    """A row of originals, then one row of pictures for each row of figures."""
    shown = min(_MOST, len(truth))
    lines = [render_line("original", truth[:shown], ["" for _ in range(shown)])]
    for number, row in enumerate(rows):
        if row.images is None or len(row.images) < shown:
            continue
        name = names[number] if names else (f"{row.name} {row.note}" if row.note else row.name)
        captions = [f"{s.psnr:.1f} dB" for s in row.scores[:shown]]
        lines.append(render_line(name, row.images[:shown], captions))
    left = len(truth) - shown
    more = el("p", f"{left} more not shown", class_="soft") if left else None
    return join([render_rows((), lines, "Pictures", "loot"), more])


def render_line(name: str, images: Tensor, captions: Sequence[str]) -> Html:
    """A row of pictures, each with a few words below it."""
    cells = []
    for at, (image, text) in enumerate(zip(images, captions, strict=True)):
        label = f"{name}, image {at + 1}{f', {text}' if text else ''}"
        cells.append(
            el("td", el("img", src=to_data_uri(image_from_tensor(image)), alt=label), text)
        )
    return el("tr", el("th", name, scope="row"), *cells)


def render_metrics(rows: Sequence[Row]) -> Html:
    """The table of figures as markup."""
    lines = []
    for row in rows:
        name, *cells = format_cells(row)
        head = el("th", name, scope="row")
        kind = "other" if row.threat is None else None
        lines.append(el("tr", head, *(el("td", cell) for cell in cells), class_=kind))
    return render_rows(HEADINGS, lines, "Figures", "numbers dense")
