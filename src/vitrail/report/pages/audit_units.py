"""The prototypes of a class, one by one: who looks at the tested place, and who differs."""

from __future__ import annotations

from collections.abc import Callable

from vitrail.audit.finding import Finding
from vitrail.report.pages.audit_words import format_percent
from vitrail.report.pages.page_elements import format_number

_MOST = 12  # prototypes that are listed
_HEADS = (
    "prototype<br>(shared model)",
    "looks at<br>the place",
    "activation, put into<br>other images",
    "the same, of the<br>own model's",
    "activation,<br>when covered",
    "attention<br>in the place",
    "distance to the<br>nearest own one",
    "overlap of<br>their boxes",
)


def render_unit_table(finding: Finding) -> str:
    """Those that the place moves most come first; nothing where there are none."""
    listed = sorted(finding.units, key=lambda unit: -max(unit.rise, unit.own_rise))
    if not listed:
        return ""
    rows = []
    for unit in listed[:_MOST]:
        cells = (
            str(unit.unit),
            "yes" if unit.named else "no",
            _format_signed(unit.rise),
            _format_signed(unit.own_rise),
            _format_signed(-unit.drop),
            _format_optional(unit.inside, format_percent),
            _format_optional(unit.distance, lambda value: format_number(value, 2)),
            _format_optional(unit.overlap, format_percent),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    more = len(listed) - len(rows)
    if more:
        rows.append(f'<tr class="other"><td colspan="{len(_HEADS)}">{more} more</td></tr>')
    by = "their vectors" if listed[0].by == "vectors" else "their maps (1 minus correlation)"
    heads = "".join(f"<th>{head}</th>" for head in _HEADS)
    return (
        f'<div class="wide"><table class="audit"><thead><tr>{heads}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="soft">Distances are those of {by}.'
        " A prototype looks at the place if the place, put into other images, excites it, or the "
        "own model's of that number, three times as much as any prototype of another class.</p>"
    )


def _format_signed(value: float) -> str:
    text = format_number(value, 2)
    return f"+{text}" if text[0].isdigit() else text


def _format_optional(value: float | None, format_value: Callable[[float], str]) -> str:
    return "-" if value is None else format_value(value)
