"""The frame of every live page: the same look as the report, a bar on top, one script."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from vitrail import __version__
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import GRAY_FILTER

PAGES = {
    "": "Watch",
    "ask": "Ask",
    "browse": "Browse",
    "audit": "Audit",
    "annotate": "Annotate",
    "leaves": "What leaves",
}
PLAN_PAGES = {"": "Before the run", "annotate": "Annotate"}


def render_live_page(
    title: str,
    page: str,
    address: str | None,
    body: list[Html | None],
    lead: object = None,
    pages: Mapping[str, str] = PAGES,
) -> str:
    """A whole page; `page` is its key among `pages`, `address` that of the run it is about."""
    links = [
        el("a", name, href=_link(key, address), aria_current="page" if key == page else None)
        for key, name in pages.items()
        if address is not None or not key
    ]
    bar = el(
        "header",
        el("div", class_="glass", aria_hidden="true"),
        el(
            "div",
            el("a", "Vitrail", href="/", class_="brand"),
            el("nav", *links, aria_label="Pages"),
            el("button", "Colors: auto", type="button", class_="theme", hidden=True),
            class_="bar-top",
        ),
        class_="live-bar",
    )
    head = el("div", el("h1", title), lead, class_="live-head")
    main = el("main", GRAY_FILTER, head, *body, id="main", tabindex="-1")
    status = el("div", id="status", role="status", aria_live="polite", class_="live-status")
    foot = el("footer", f"Vitrail {__version__}. Everything stays on this machine.")
    return _render_file(title, join([bar, main, status, foot]))


def _link(key: str, address: str | None) -> str:
    return f"{address}/{key}".rstrip("/") if address is not None else "/"


def address_run(name: str) -> str:
    """Where the pages of a run are; folders may have any name."""
    return f"/run/{quote(name, safe='')}"


def render_refusal(sentence: str, door: bool = False) -> str:
    """A page that says why not; with a `door`, a field for the password."""
    form = None
    if door:
        form = el(
            "form",
            el("label", "Password ", el("input", type="password", name="password")),
            el("button", "Open"),
            method="post",
            action="/login",
        )
    return _render_file("Vitrail", el("main", el("h1", "Vitrail"), el("p", sentence), form))


def _render_file(title: str, body: Html) -> str:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title if title == "Vitrail" else f"{title} \N{MIDDLE DOT} Vitrail"),
        el("link", rel="stylesheet", href="/assets/style.css"),
        el("link", rel="icon", href="data:,"),
        el("script", src="/assets/live.js", defer=True),
    )
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{el("body", skip, body)}\n</html>\n'
