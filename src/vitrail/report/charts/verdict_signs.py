"""Signs of verdicts: a shape each, so that nothing hangs on color alone."""

from __future__ import annotations

from vitrail.audit.finding import VERDICT_WORDS
from vitrail.report.charts.drawing import Sign
from vitrail.report.html import Html, el, to_html
from vitrail.report.pages.audit_figures import draw_verdict_shape

VERDICTS: dict[str, tuple[Sign, str]] = {
    "clear": ("ring", "fine"),
    "suspect": ("triangle", "warn"),
    "biased": ("square", "bad"),
}


def choose_sign(verdict: str) -> tuple[Sign, str]:
    """The shape and the role of color of a verdict; one that is not known is in doubt."""
    return VERDICTS.get(verdict, VERDICTS["suspect"])


def draw_verdict(verdict: str, text: object = None) -> Html:
    """The shape of a verdict with a text beside it; left out: the verdict in words."""
    shape = verdict if verdict in VERDICTS else "suspect"
    label = to_html(VERDICT_WORDS.get(verdict, verdict) if text is None else text)  # type: ignore[call-overload]
    return el("span", Html(draw_verdict_shape(shape)), label, class_=f"verdict {shape}")  # type: ignore[arg-type]


def draw_legend() -> Html:
    """What the shapes mean."""
    return el("ul", *(el("li", draw_verdict(verdict)) for verdict in VERDICTS), class_="key")
