"""The drawings of an audit page that need no image: verdicts, gaps, boxes in an empty frame."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vitrail.audit.finding import VERDICT_WORDS, Verdict
from vitrail.explain.evidence import Box
from vitrail.report.pages.page_elements import draw_box, format_number

# A shape for each verdict, so that nothing hangs on color alone.
_SHAPES: dict[Verdict, str] = {
    "clear": '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="2"/>',
    "suspect": '<path d="M8 1.5 15 14H1Z" fill="none" stroke="currentColor" stroke-width="2" '
    'stroke-linejoin="round"/>',
    "biased": '<path d="M1 1H15V15H1Z" fill="currentColor"/>',
}


def draw_verdict_shape(verdict: Verdict) -> str:
    """A circle for clear, a triangle for suspect, a full square for biased."""
    return f'<svg viewBox="0 0 16 16" aria-hidden="true">{_SHAPES[verdict]}</svg>'


def draw_verdict(verdict: Verdict, text: str | None = None) -> str:
    """The shape of a verdict with a text beside it; left out: the verdict in words."""
    label = VERDICT_WORDS[verdict] if text is None else text
    return f'<span class="verdict {verdict}">{draw_verdict_shape(verdict)}{escape(label)}</span>'


def draw_legend() -> str:
    """What the shapes mean."""
    return '<div class="key">' + "".join(draw_verdict(verdict) for verdict in _SHAPES) + "</div>"


def draw_gap(value: float, spread: float, reach: float, who: str) -> str:
    """A difference of accuracies with twice its standard error, on a scale of plus-minus reach."""
    wide, middle = 260.0, 130.0
    scale = (middle - 10) / reach if reach > 0 else 0.0
    at = middle + scale * value
    low, high = at - 2 * scale * spread, at + 2 * scale * spread
    points, error = format_number(100 * value, 1), format_number(200 * spread, 1)
    label = f"{who}: {points} plus or minus {error} points"
    return (
        f'<svg class="gap" role="img" aria-label="{escape(label)}" viewBox="0 0 {wide:g} 26">'
        f'<title>{escape(label)}</title><line class="zero" x1="{middle:g}" x2="{middle:g}" '
        f'y1="1" y2="25"/><line x1="{max(0.0, low):.1f}" x2="{min(wide, high):.1f}" y1="13" '
        f'y2="13"/><circle cx="{at:.1f}" cy="13" r="5"/></svg>'
    )


def draw_empty_frame(
    size: tuple[int, int], boxes: Sequence[Box], main: Box | None, label: str
) -> str:
    """Where boxes lie in images that are not shown: each one faint, the typical one bright."""
    height, width = size
    faint = "".join(
        f'<rect class="faint" x="{x0}" y="{y0}" width="{x1 - x0}" height="{y1 - y0}"/>'
        for x0, y0, x1, y1 in boxes
    )
    text = escape(label)
    return (
        f'<svg class="picture" role="img" aria-label="{text}" viewBox="0 0 {width} {height}">'
        f'<title>{text}</title><rect class="canvas" width="{width}" height="{height}"/>{faint}'
        f"{'' if main is None else draw_box(main)}</svg>"
    )
