"""The whole document: one file, one stylesheet, one script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from vitrail import __version__
from vitrail.report.blocks import Section
from vitrail.report.charts.palette import make_css_variables
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import FILTER

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def render_document(
    title: str, lead: object, sections: Sequence[Section], runs: Sequence[str], private: bool
) -> str:
    """One HTML document; `private` marks it at its top as not for sharing."""
    links = [el("li", el("a", s.title, href=f"#{s.anchor}")) for s in sections]
    nav = el("nav", _render_run_picker(runs), el("ul", *links), aria_label="Sections")
    theme = el("button", "Colors: auto", type="button", class_="theme", hidden=True)
    warning = None
    if private:
        warning = el("p", "Shows images of a site: not for sharing.", class_="private")
    header = el(
        "header",
        el("div", class_="glass", aria_hidden="true"),
        el(
            "div",
            el("div", el("h1", title), warning, el("p", lead, class_="soft")),
            theme,
            class_="top",
        ),
    )
    main = el("main", Html(FILTER), *(s.to_html() for s in sections), id="main")
    foot = el(
        "footer",
        f"Made by Vitrail {__version__}. One file: nothing is loaded from elsewhere and nothing is "
        "sent anywhere.",
    )
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    body = el("body", skip, header, el("div", nav, main, class_="page"), foot, _render_script())
    return f'<!DOCTYPE html>\n<html lang="en">\n{_render_head(title)}\n{body}\n</html>\n'


def _render_head(title: str) -> Html:
    return el(
        "head",
        el("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        Html(f"<style>{make_css_variables()}\n{_read_asset('style.css')}</style>"),
    )


def _render_run_picker(runs: Sequence[str]) -> Html | None:
    """With several runs, which of them is looked at in every section."""
    if len(runs) < 2:
        return None
    options = [el("option", name, value=at) for at, name in enumerate(runs)]
    select = el("select", *options, data_choose="run", id="choose-run")
    return el("label", "Run", select, class_="choose", for_="choose-run")


def render_run_views(blocks: Sequence[tuple[str, Html]]) -> Html:
    """What belongs to each run, of which one is shown."""
    if len(blocks) == 1:
        return blocks[0][1]
    return join(
        el("div", el("p", name, class_="view-name"), view, data_group="run", data_key=at)
        for at, (name, view) in enumerate(blocks)
    )


def _render_script() -> Html:
    return Html(f"<script>{_read_asset('script.js')}{_read_asset('zoom.js')}</script>")


def _read_asset(name: str) -> str:
    return (files("vitrail.report.assets") / name).read_text(encoding="utf-8")
