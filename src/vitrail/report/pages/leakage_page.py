"""The table and the page of a leakage grid: what each defense costs, and what it holds back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from PIL import Image

from vitrail.attack.findings import Row
from vitrail.attack.leakage_grid import DefenseOutcome, LeakageResults
from vitrail.audit.map_fidelity import measure_fidelity
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el, format_html
from vitrail.report.pages.attack_page import render_pictures
from vitrail.report.pages.attack_table import (
    align_columns,
    format_identified,
    format_labels,
    format_psnr,
    format_steps,
)
from vitrail.report.pages.page_elements import render_rows, to_data_uri
from vitrail.runs.opened_run import Run

HEADINGS = (
    "defense",
    "noise / change",
    "accuracy",
    "fidelity",
    "epsilon",
    "attack",
    "PSNR dB",
    "SSIM",
    "identified",
    "labels",
    "steps",
)


def add_fidelity(results: LeakageResults, images: int = 100) -> LeakageResults:
    """The same grid with how alike each defense's explanations are to the undefended ones.

    It is the windowed structural similarity of Grad-CAM maps of the same test images.
    """
    runs = [Run(outcome.run) for outcome in results.outcomes]
    if len(runs) < 2 or runs[0].keeps_home:
        return results
    report = measure_fidelity(runs[0], runs[1:], images)
    outcomes = [results.outcomes[0]]
    for outcome, fidelity in zip(results.outcomes[1:], report.runs, strict=True):
        value = fidelity.figures.get("ssim")
        added = {} if value is None else {"fidelity": value}
        outcomes.append(replace(outcome, figures={**outcome.figures, **added}))
    return replace(results, outcomes=tuple(outcomes))


def _format_lines(results: LeakageResults) -> list[tuple[str, ...]]:
    """The table as text: the references, then each defense with each attack."""
    lines = [("-", "-", "-", "-", "-", *_format_metrics(row)) for row in results.references]
    for outcome in results.outcomes:
        lines += [(*_format_defense(outcome), *_format_metrics(row)) for row in outcome.rows]
    return lines


def _format_defense(outcome: DefenseOutcome) -> tuple[str, ...]:
    fidelity = outcome.figures.get("fidelity")
    return (
        outcome.name,
        f"{outcome.energy:.2g}",
        "-" if outcome.accuracy is None else f"{outcome.accuracy:.3f}",
        "-" if fidelity is None else f"{fidelity:.2f}",
        "-" if outcome.epsilon is None else f"{outcome.epsilon:.3g}",
    )


def _format_metrics(row: Row) -> tuple[str, ...]:
    return (
        f"{row.name} ({row.note})" if row.note else row.name,
        format_psnr(row),
        f"{row.mean('ssim'):.2f}",
        format_identified(row),
        format_labels(row),
        format_steps(row) if row.threat is not None else "-",
    )


def format_leakage_text(results: LeakageResults) -> str:
    """For a terminal."""
    return align_columns(HEADINGS, _format_lines(results), (0, 5))


def format_leakage_markdown(results: LeakageResults) -> str:
    """For the docs."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    return "\n".join([*lines, *(f"| {' | '.join(line)} |" for line in _format_lines(results))])


def render_leakage_page(
    results: LeakageResults, figures: Mapping[str, Path] = MappingProxyType({})
) -> str:
    """One HTML document: the originals, what came through undefended and through each defense.

    `figures` are PNG files by what they show.
    """
    body: list[Html | None] = [_render_attack(results, name) for name in _list_attacks(results)]
    body += [_render_drawing(words, path) for words, path in figures.items()]
    counts = f"{len(results.outcomes)} defenses · {len(results.truth)} images"
    lead = el("p", f"{counts} · the model that was sent: {results.options.model}", class_="soft")
    body.append(el("section", el("h2", "Figures"), _render_table(results), _MEANING))
    body.append(el("section", el("h2", "What the attackers know"), _render_threats(results)))
    return render_page("What leaks through each defense", lead, body)


def _list_attacks(results: LeakageResults) -> list[str]:
    return list(dict.fromkeys(row.name for o in results.outcomes for row in o.rows))


def _render_attack(results: LeakageResults, attack: str) -> Html:
    """Pictures of one attack: a row for each defense."""
    rows: list[Row] = []
    names: list[str] = []
    for outcome in results.outcomes:
        for row in outcome.rows:
            if row.name == attack:
                rows.append(row)
                names.append(f"{outcome.name} {row.note}".strip())
    return el("section", el("h2", attack), render_pictures(results.truth, rows, names))


def _render_drawing(words: str, path: Path) -> Html:
    with Image.open(path) as drawn:
        source = to_data_uri(drawn)
    title = f"{words} by noise over change"
    return el("section", el("h2", title), el("img", class_="sheet", src=source, alt=title))


def _render_table(results: LeakageResults) -> Html:
    lines = [
        el("tr", el("th", line[0], scope="row"), *(el("td", cell) for cell in line[1:]))
        for line in _format_lines(results)
    ]
    return render_rows(HEADINGS, lines, "Figures", "numbers dense")


_MEANING = el(
    "p",
    format_html(
        "Rows without a defense's name are no attacks: another image of the same data, and "
        "the mean image. Compare each defense with {}: where the attack fails there "
        "too, the table says nothing about the defense. Noise / change is the length of what "
        "the defense added over the length of the update. An epsilon is printed only where an "
        "accountant gave one; every other defense is empirical, with no formal guarantee.",
        el("b", "none"),
    ),
)


def _render_threats(results: LeakageResults) -> Html:
    sentences: dict[str, str] = {}
    for outcome in results.outcomes:
        for row in outcome.rows:
            if row.threat is not None:
                sentences[f"{outcome.name}, {row.name} {row.note}".strip()] = row.threat.sentence()
    pairs = [item for a, b in sentences.items() for item in (el("dt", a), el("dd", b))]
    return el("dl", *pairs, class_="facts")
