"""The table and the page of a leakage grid: what each defense costs, and what it holds back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from types import MappingProxyType

from PIL import Image

from vitrail.attack.leakage import Leakage, Outcome
from vitrail.attack.trial import Row
from vitrail.audit.fidelity import fidelity
from vitrail.engine.loaded import Run
from vitrail.report.evidence_html import data_uri, page
from vitrail.report.leakage_page import STYLE, pictures
from vitrail.report.leakage_table import columns

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
)


def with_fidelity(found: Leakage, images: int = 100) -> Leakage:
    """The same grid with how alike each defense's explanations are to the undefended ones.

    It is the windowed structural similarity of Grad-CAM maps of the same test images.
    """
    runs = [Run(outcome.run) for outcome in found.outcomes]
    if len(runs) < 2 or runs[0].keeps_home:
        return found
    report = fidelity(runs[0], runs[1:], images)
    outcomes = [found.outcomes[0]]
    for outcome, beside in zip(found.outcomes[1:], report.runs, strict=True):
        value = beside.figures.get("ssim")
        told = {} if value is None else {"fidelity": value}
        outcomes.append(replace(outcome, figures={**outcome.figures, **told}))
    return replace(found, outcomes=tuple(outcomes))


def _lines(found: Leakage) -> list[tuple[str, ...]]:
    """The table as text: the references, then each defense with each attack."""
    lines = [("-", "-", "-", "-", "-", *_figures(row)) for row in found.references]
    for outcome in found.outcomes:
        lines += [(*_defense(outcome), *_figures(row)) for row in outcome.rows]
    return lines


def _defense(outcome: Outcome) -> tuple[str, ...]:
    fidelity = outcome.figures.get("fidelity")
    return (
        outcome.name,
        f"{outcome.energy:.2g}",
        "-" if outcome.accuracy is None else f"{outcome.accuracy:.3f}",
        "-" if fidelity is None else f"{fidelity:.2f}",
        "-" if outcome.epsilon is None else f"{outcome.epsilon:.3g}",
    )


def _figures(row: Row) -> tuple[str, ...]:
    share = row.label_recovery
    return (
        f"{row.name} ({row.note})" if row.note else row.name,
        f"{row.mean('psnr'):.1f} ± {row.spread('psnr'):.1f}",
        f"{row.mean('ssim'):.2f}",
        f"{100 * row.mean('identified'):.0f} %",
        "-" if share is None else f"{100 * share:.0f} %",
    )


def leakage_text(found: Leakage) -> str:
    """For a terminal."""
    return columns(HEADINGS, _lines(found), (0, 5))


def leakage_markdown(found: Leakage) -> str:
    """For the docs."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    return "\n".join([*lines, *(f"| {' | '.join(line)} |" for line in _lines(found))])


def leakage_page(found: Leakage, figures: Mapping[str, Path] = MappingProxyType({})) -> str:
    """One HTML document: the originals, what came through undefended and through each defense.

    `figures` are PNG files by what they show.
    """
    sections = [_section(found, name) for name in _attacks(found)]
    sections += [_drawing(words, path) for words, path in figures.items()]
    lead = (
        f'<p class="soft">{len(found.outcomes)} defenses · {len(found.truth)} images · the model '
        f"that was sent: {escape(found.options.model)}</p>"
    )
    body = [*sections, f"<section><h2>Figures</h2>{_table(found)}{_meaning()}</section>"]
    body.append(f"<section><h2>What the attackers know</h2>{_threats(found)}</section>")
    made = page("What leaks through each defense", lead, body)
    return made.replace("</style>", f"{STYLE}</style>", 1)


def _attacks(found: Leakage) -> list[str]:
    return list(dict.fromkeys(row.name for o in found.outcomes for row in o.rows))


def _section(found: Leakage, attack: str) -> str:
    """Pictures of one attack: a row for each defense."""
    rows: list[Row] = []
    names: list[str] = []
    for outcome in found.outcomes:
        for row in outcome.rows:
            if row.name == attack:
                rows.append(row)
                names.append(f"{outcome.name} {row.note}".strip())
    return f"<section><h2>{escape(attack)}</h2>{pictures(found.truth, rows, names)}</section>"


def _drawing(words: str, path: Path) -> str:
    with Image.open(path) as drawn:
        source = data_uri(drawn)
    told = escape(f"{words} by noise over change")
    return f'<section><h2>{told}</h2><img class="drawn" src="{source}" alt="{told}"></section>'


def _table(found: Leakage) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEADINGS)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in _lines(found)
    )
    return (
        '<div class="wide" tabindex="0" role="group" aria-label="Figures">'
        f'<table class="figures"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>'
        "</div>"
    )


def _meaning() -> str:
    return (
        "<p>Rows without a defense's name are no attacks: another image of the same data, and "
        "the mean image. Compare each defense with <b>none</b>: where the attack fails there "
        "too, the table says nothing about the defense. Noise / change is the length of what "
        "the defense added over the length of the update. An epsilon is printed only where an "
        "accountant gave one; every other defense is empirical, with no formal guarantee.</p>"
    )


def _threats(found: Leakage) -> str:
    told: dict[str, str] = {}
    for outcome in found.outcomes:
        for row in outcome.rows:
            if row.threat is not None:
                told[f"{outcome.name}, {row.name} {row.note}".strip()] = row.threat.sentence()
    return _definitions(list(told.items()))


def _definitions(pairs: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in pairs)
    return f"<dl>{items}</dl>"
