"""Signs of verdicts: a shape each, so that nothing hangs on color alone."""

from __future__ import annotations

from vitrail.audit.finding import VERDICT_WORDS
from vitrail.report.charts.drawing import Sign
from vitrail.report.html import Html, el

VERDICTS: dict[str, tuple[Sign, str]] = {
    "clear": ("ring", "fine"),
    "differs": ("triangle", "warn"),
    "biased": ("square", "bad"),
}
_WORDS = {str(verdict): words for verdict, words in VERDICT_WORDS.items()}
_SHAPES = {
    "clear": el("circle", cx=8, cy=8, r=6, fill="none", stroke="currentColor", stroke_width=2),
    "differs": el("path", d="M8 1.5 15 14H1Z", fill="none", stroke="currentColor",
                  stroke_width=2, stroke_linejoin="round"),
    "biased": el("path", d="M1 1H15V15H1Z", fill="currentColor"),
}  # fmt: skip


def choose_sign(verdict: str) -> tuple[Sign, str]:
    """The shape and the role of color of a verdict; one that is not known is in doubt."""
    return VERDICTS.get(verdict, VERDICTS["differs"])


def draw_verdict(verdict: str, text: object = None) -> Html:
    """The shape of a verdict with a text beside it; left out: the verdict in words."""
    kind = verdict if verdict in VERDICTS else "differs"
    shape = el("svg", _SHAPES[kind], viewBox="0 0 16 16", aria_hidden="true")
    label = _WORDS.get(verdict, verdict) if text is None else text
    return el("span", shape, label, class_=f"verdict {kind}")


def draw_legend() -> Html:
    """What the shapes mean."""
    return el("ul", *(el("li", draw_verdict(verdict)) for verdict in VERDICTS), class_="key")
