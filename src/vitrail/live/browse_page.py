"""The page Browse: test images by what became of them, and a confusion matrix that opens them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import numpy as np
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from vitrail.live.catalog import LiveRun
from vitrail.live.layout import render_live_page
from vitrail.report.blocks import render_block
from vitrail.report.html import Html, el, join
from vitrail.report.photos import Photos
from vitrail.report.run_record import AUDIT
from vitrail.report.sections.parts_section import make_parts_blocks
from vitrail.report.viewer import ReportView, open_view

_SHOWN = 60  # images of one page
_UNSURE = 0.6  # a largest probability below this is unsure
_FILTERS = {
    "all": "all",
    "wrong": "wrong",
    "unsure": "unsure",
    "flagged": "class flagged by the audit",
}


def answer_browse(request: Request, live: LiveRun) -> Response:
    """The page for a filter."""
    return HTMLResponse(render_browse_page(live, dict(request.query_params)))


def render_browse_page(live: LiveRun, query: Mapping[str, str]) -> str:
    """Filters, matrix and images; every filter is in the address."""
    rows, shares = live.predict_tests(query.get("model"))
    federation = live.load_federation()
    labels = federation.images.labels[rows]
    predicted = shares.argmax(1)
    kept = _select(live, query, labels, predicted, shares)
    if query.get("site"):
        site = federation.sites.get(query["site"])
        kept &= np.isin(rows, [] if site is None else site.test)
    shown = np.nonzero(kept)[0]
    cards = [
        _render_card(live, int(rows[i]), int(labels[i]), int(predicted[i]), float(shares[i].max()))
        for i in shown[:_SHOWN]
    ]
    more = len(shown) - len(cards)
    count = f"{len(shown)} of {len(rows)} test images" + (
        f", the first {_SHOWN}" if more > 0 else ""
    )
    body: list[Html | None] = [
        el("section", _render_filters(live, query), el("p", count, class_="soft", id="count"),
           el("ul", *cards, class_="cards")),
        el("section", el("h2", "What each class was taken for"),
           _render_matrix(live, labels, predicted)),
    ]  # fmt: skip
    lead = el("p", "Test images by what became of them. A picture leads to Ask.", class_="lead")
    return render_live_page("Browse", "browse", live.address, body, lead)


def _select(
    live: LiveRun,
    query: Mapping[str, str],
    labels: np.ndarray,
    predicted: np.ndarray,
    shares: np.ndarray,
) -> np.ndarray:
    """Which images a filter keeps."""
    classes = live.run.classes
    kept = np.ones(len(labels), bool)
    show = query.get("show", "all")
    if show == "wrong":
        kept &= labels != predicted
    elif show == "unsure":
        kept &= shares.max(1) < _UNSURE
    elif show == "flagged":
        kept &= np.isin(labels, [classes.index(c) for c in _list_flagged(live) if c in classes])
    for key, values in (("true", labels), ("taken", predicted)):
        if query.get(key) in classes:
            kept &= values == classes.index(query[key])
    return kept


def _list_flagged(live: LiveRun) -> set[str]:
    audit = live.read().results.get(AUDIT, {})
    return {
        str(entry["class"])
        for site in audit.get("sites", [])
        for entry in site.get("classes", [])
        if entry.get("verdict") != "clear"
    }


def _render_filters(live: LiveRun, query: Mapping[str, str]) -> Html:
    run = live.run

    def choose(name: str, label: str, options: Mapping[str, str]) -> Html:
        items = [
            el("option", words, value=key, selected=query.get(name, "") == key)
            for key, words in options.items()
        ]
        return el("label", label, el("select", *items, name=name))

    any_class = {"": "any", **{name: name for name in run.classes}}
    sites = {"": "any", **{name: name for name in run.sites}}
    return el(
        "form",
        choose("show", "Show", _FILTERS),
        choose("true", "True class", any_class),
        choose("taken", "Taken for", any_class),
        choose("site", "Site", sites) if live.viewer.site is None else None,
        choose("model", "Model", {kind: kind for kind in live.list_models()}),
        el("button", "Show", class_="main-button"),
        class_="filters",
    )


def _render_card(live: LiveRun, row: int, label: int, predicted: int, share: float) -> Html:
    classes = live.run.classes
    verdict = "right" if label == predicted else f"wrong: it is {classes[label]}"
    words = [el("b", classes[predicted]), el("small", f"{100 * share:.0f} % sure, {verdict}")]
    if not live.may_see:
        return el("li", *words)
    source = f"{live.address}/image?image=test-{row}"
    picture = el("img", src=source, alt=f"test image {row}", loading="lazy")
    return el("li", el("a", picture, *words, href=f"{live.address}/ask?image=test-{row}"))


def _render_matrix(live: LiveRun, labels: np.ndarray, predicted: np.ndarray) -> Html:
    classes = live.run.classes
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, (labels, predicted), 1)
    totals = counts.sum(1).clip(1)
    rows = []
    for true, name in enumerate(classes):
        cells = []
        for taken, other in enumerate(classes):
            number = int(counts[true, taken])
            query = urlencode({"true": name, "taken": other})
            label = f"{number} images of {name} taken for {other}"
            tone = 85 * number / totals[true]
            link = el("a", number, href=f"?{query}", aria_label=label) if number else ""
            style = f"background:rgba(86,150,200,{0.4 * tone / 100:.2f})"
            cells.append(el("td", link, style=style))
        rows.append(el("tr", el("th", name, scope="row"), *cells))
    heads = [el("th", "true class", scope="col"), *(el("th", c, scope="col") for c in classes)]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="matrix dense")
    return el(
        "div", table, class_="wide", role="region", tabindex="0", aria_label="Confusion matrix"
    )


def answer_parts(_: Request, live: LiveRun) -> Response:
    """Prototypes and subspaces with their best patches, as the report shows them."""
    record = live.read()
    view = open_view(record, live.viewer)
    photos = Photos(
        live.name, view.images if isinstance(view, ReportView) and view.shows_pixels else None
    )
    blocks = [render_block(block) for block in make_parts_blocks(record, view, photos)]
    body: list[Html | None] = [photos.render_store(), el("section", join(blocks))]
    return HTMLResponse(render_live_page("What the model looks for", "browse", live.address, body))
