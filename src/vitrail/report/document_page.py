"""The whole document: one file, one stylesheet, one script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from vitrail import __version__
from vitrail.report.blocks import Section
from vitrail.report.charts.palette import make_css_variables
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import GRAY_FILTER

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SCRIPT_POLICY = f"{POLICY}; script-src 'unsafe-inline'"
_FOOT = "One file: nothing is loaded from elsewhere and nothing is sent anywhere."


def render_document(
    title: str, lead: object, sections: Sequence[Section], runs: Sequence[str], private: bool
) -> str:
    """A report: sections beside their list; `private` marks it at its top as not for sharing."""
    links = [el("li", el("a", s.title, href=f"#{s.anchor}")) for s in sections]
    nav = el("nav", _render_run_picker(runs), el("ul", *links), aria_label="Sections")
    warning = None
    if private:
        warning = el("p", "Shows images of a site: not for sharing.", class_="private")
    main = el("main", GRAY_FILTER, *(s.to_html() for s in sections), id="main")
    page = el("div", nav, main, class_="page")
    script = Html(f"<script>{read_asset('script.js')}{read_asset('zoom.js')}</script>")
    return _render_file(title, join([warning, el("p", lead, class_="soft")]), page, script)


def render_page(title: str, lead: object, body: Sequence[Html | None]) -> str:
    """The page of a single command, without any script: a title, a lead, and its sections."""
    main = el("main", GRAY_FILTER, *body, id="main")
    return _render_file(title, lead, el("div", main, class_="page alone"))


def _render_file(title: str, lead: object, page: Html, script: Html | None = None) -> str:
    theme = None
    if script is not None:
        theme = el("button", "Colors: auto", type="button", class_="theme", hidden=True)
    header = el(
        "header",
        el("div", class_="glass", aria_hidden="true"),
        el("div", el("div", el("h1", title), lead), theme, class_="top"),
    )
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    foot = el("footer", f"Made by Vitrail {__version__}. {_FOOT}")
    body = el("body", skip, header, page, foot, script)
    head = _render_head(title, POLICY if script is None else SCRIPT_POLICY)
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _render_head(title: str, policy: str) -> Html:
    return el(
        "head",
        el("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        Html(f"<style>{read_style()}</style>"),
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


def read_style() -> str:
    """The one stylesheet of reports, pages and the live application."""
    return f"{make_css_variables()}\n{read_asset('style.css')}{read_asset('pages.css')}"


def read_asset(name: str) -> str:
    """The text of a file that belongs to the pages."""
    return (files("vitrail.report.assets") / name).read_text(encoding="utf-8")
