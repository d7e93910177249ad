"""The prototypes of a class, one by one: who looks at the tested place, and who differs."""

from __future__ import annotations

from collections.abc import Callable

from vitrail.audit.finding import Finding
from vitrail.report.html import Html, el, join
from vitrail.report.pages.audit_words import format_percent
from vitrail.report.pages.page_elements import format_number, render_rows

_MOST = 12  # prototypes that are listed
_HEADS = (
    "prototype (shared model)",
    "looks at the place",
    "activation, put into other images",
    "the same, of the own model's",
    "activation, when covered",
    "attention in the place",
    "distance to the nearest own one",
    "overlap of their boxes",
)


def render_unit_table(finding: Finding) -> Html | None:
    """Those that the place moves most come first; nothing where there are none."""
    listed = sorted(finding.units, key=lambda unit: -max(unit.rise, unit.own_rise))
    if not listed:
        return None
    rows = []
    for unit in listed[:_MOST]:
        cells = (
            str(unit.unit),
            "dead: far from every patch" if unit.dead else "yes" if unit.named else "no",
            _format_signed(unit.rise),
            _format_signed(unit.own_rise),
            _format_signed(-unit.drop),
            _format_optional(unit.inside, format_percent),
            _format_optional(unit.distance, lambda value: format_number(value, 2)),
            _format_optional(unit.overlap, format_percent),
        )
        rows.append(el("tr", *(el("td", cell) for cell in cells)))
    more = len(listed) - len(rows)
    if more:
        rows.append(el("tr", el("td", f"{more} more", colspan=len(_HEADS)), class_="other"))
    by = "their vectors" if listed[0].by == "vectors" else "their maps (1 minus correlation)"
    note = (
        f"Distances are those of {by}. A prototype looks at the place if the place, put into other "
        "images, excites it, or the own model's of that number, three times as much as any "
        "prototype of another class. A dead one is farther from every patch of these images than "
        "patches are from each other: it looks nowhere."
    )
    table = render_rows(_HEADS, rows, "Prototypes of the class", "numbers dense")
    return join([table, el("p", note, class_="soft")])


def _format_signed(value: float) -> str:
    text = format_number(value, 2)
    return f"+{text}" if text[0].isdigit() else text


def _format_optional(value: float | None, format_value: Callable[[float], str]) -> str:
    return "-" if value is None else format_value(value)
