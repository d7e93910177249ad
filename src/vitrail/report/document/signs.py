"""Signs of verdicts: a shape each, so that nothing hangs on color alone."""

from __future__ import annotations

from vitrail.audit.finding import WORDS
from vitrail.report.audit_figures import shape
from vitrail.report.document.markup import Html, el, html
from vitrail.report.document.scene import Sign

VERDICTS: dict[str, tuple[Sign, str]] = {
    "clear": ("ring", "fine"),
    "suspect": ("triangle", "warn"),
    "biased": ("square", "bad"),
}


def sign_of(verdict: str) -> tuple[Sign, str]:
    """The shape and the role of color of a verdict; one that is not known is in doubt."""
    return VERDICTS.get(verdict, VERDICTS["suspect"])


def mark(verdict: str, text: object = None) -> Html:
    """The shape of a verdict with a text beside it; left out: the verdict in words."""
    known = verdict if verdict in VERDICTS else "suspect"
    words = html(WORDS.get(verdict, verdict) if text is None else text)  # type: ignore[call-overload]
    return el("span", Html(shape(known)), words, class_=f"verdict {known}")  # type: ignore[arg-type]


def key() -> Html:
    """What the shapes mean."""
    return el("ul", *(el("li", mark(verdict)) for verdict in VERDICTS), class_="key")
