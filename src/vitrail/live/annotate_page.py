"""The page Annotate: regions that never count, or never leave, drawn on the site's own images."""

from __future__ import annotations

import io
from typing import Literal, Protocol
from urllib.parse import urlencode

import numpy as np
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from vitrail.config.annotation_section import Annotation
from vitrail.engine.federation import Federation
from vitrail.errors import ConfigError, DataError
from vitrail.live.annotation_store import AnnotationStore
from vitrail.live.form_fields import (
    EDGES,
    read_fields,
    read_first,
    read_name,
    read_region,
    stamp_now,
)
from vitrail.live.layout import render_live_page
from vitrail.report.html import Html, el
from vitrail.report.pages.page_elements import image_from_array
from vitrail.report.viewer import Rows, Viewer

_USES: dict[Literal["nothing", "training"], str] = {
    "nothing": "never counts: not in training, not in sharing",
    "training": "never leaves: trained on, not shared",
}
_ABOUT = {"image": "this image", "site": "every image of this site", "all": "every site's images"}


class Desk(Protocol):
    """What can be drawn on: the images of a run, or of one that is planned."""

    @property
    def address(self) -> str:
        """Where its pages are."""

    @property
    def pages(self) -> dict[str, str]:
        """Its pages, by the end of their address."""

    @property
    def viewer(self) -> Viewer:
        """Who looks."""

    @property
    def may_see(self) -> bool:
        """Whether pixels may be shown."""

    @property
    def store(self) -> AnnotationStore:
        """Where annotations are kept."""

    def load_federation(self) -> Federation:
        """Its images."""


def list_own_rows(desk: Desk) -> Rows:
    """The images that may be drawn on, in training and test: a site's own, or public ones."""
    if not desk.may_see:
        raise DataError("images of sites are not shown", hint="Start with --site NAME.")
    federation = desk.load_federation()
    sites = [s for n, s in federation.sites.items() if desk.viewer.site in (None, n)]
    parts = [part for site in sites for part in (site.train, site.test)]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def choose_row(desk: Desk, text: str) -> tuple[int, Rows]:
    """The image of an address, the first one where it names none; and all there are."""
    rows = list_own_rows(desk)
    if not len(rows):
        raise DataError("there are no images of this site here")
    if not text:
        return int(rows[0]), rows
    if not (text.isascii() and text.isdecimal()) or int(text[:12]) not in rows:
        raise DataError("there is no such image here")
    return int(text), rows


def answer_square(request: Request, desk: Desk) -> Response:
    """An image as the network sees it."""
    row, _ = choose_row(desk, request.query_params.get("row", ""))
    buffer = io.BytesIO()
    image_from_array(np.asarray(desk.load_federation().images.images[row])).save(buffer, "PNG")
    return Response(buffer.getvalue(), media_type="image/png")


def find_site(federation: Federation, row: int) -> str:
    """Whose image it is."""
    for name, site in federation.sites.items():
        if row in site.train or row in site.test:
            return name
    return ""


def answer_annotate(request: Request, desk: Desk) -> Response:
    """One image to draw on, and what was drawn so far."""
    row, rows = choose_row(desk, request.query_params.get("row", ""))
    federation = desk.load_federation()
    height, width = federation.images.images.shape[1:3]
    name, site = str(federation.images.names[row]), find_site(federation, row)
    drawn = desk.store.read()
    here = [one for one in drawn if one.holds_at(site) and one.image in ("", name)]
    use = "training" if request.query_params.get("use") == "training" else "nothing"
    stage = el(
        "div",
        el("img", src=f"{desk.address}/square?row={row}", alt=f"image {row} of {site}",
           draggable="false"),
        _draw_regions(here, width, height),
        class_="stage pixelated", data_draw=f"{width},{height}",
    )  # fmt: skip
    picture = el(
        "div",
        stage,
        el("p", "Drag over the image, or fill in the edges.", class_="soft hint"),
        _render_steps(desk, row, rows, use),
    )
    body: list[Html | None] = [
        el("section", el("form", picture, _render_fields(row, site, use),
                         method="post", action=f"{desk.address}/annotations", class_="finding"),
           aria_label="Draw"),
        el("section", el("h2", "What was drawn"), _render_list(desk, drawn, row)),
    ]  # fmt: skip
    lead = el(
        "p",
        "Burned-in text and markers never count; what must not leave never does. Runs that begin "
        "later obey: at a site by themselves, in a simulation with ",
        el("code", f"--annotations {desk.store.file.name}"),
        ".",
        class_="lead",
    )
    return HTMLResponse(
        render_live_page("Annotate", "annotate", desk.address, body, lead, desk.pages)
    )


def _draw_regions(drawn: list[Annotation], width: int, height: int) -> Html:
    shapes = []
    for one in drawn:
        x0, y0, x1, y1 = one.box
        place = {"x": x0 * width, "y": y0 * height}
        size = {"width": (x1 - x0) * width, "height": (y1 - y0) * height}
        kind = "painted" if one.use == "nothing" else "painted home"
        shapes.append(el("rect", class_=kind, **place, **size))
    return el(
        "svg", *shapes, viewBox=f"0 0 {width} {height}", preserveAspectRatio="none", role="img",
        aria_label=f"{len(drawn)} regions drawn",
    )  # fmt: skip


def _render_steps(desk: Desk, row: int, rows: Rows, use: str) -> Html:
    at = int(np.searchsorted(rows, row))
    links = []
    for step, words in ((-1, "previous"), (1, "next")):
        if 0 <= at + step < len(rows):
            query = urlencode({"row": int(rows[at + step]), "use": use})
            links.append(el("a", words, href=f"{desk.address}/annotate?{query}"))
    where = el("span", f"image {at + 1} of {len(rows)}", class_="soft")
    return el("p", where, *(el("span", " ", link) for link in links), class_="steps")


def _render_fields(row: int, site: str, use: str) -> Html:
    edges = [
        el("label", name, el("input", type="number", name=name, min="0", step="any"))
        for name in EDGES
    ]
    about = [el("option", words, value=key) for key, words in _ABOUT.items()]
    uses = [el("option", words, value=key, selected=key == use) for key, words in _USES.items()]
    return el(
        "div",
        el("input", type="hidden", name="row", value=row),
        el("div", *edges, class_="row", role="group", aria_label="Region in pixels"),
        el("label", f"Holds for ({site})", el("select", *about, name="about")),
        el("label", "The region", el("select", *uses, name="use")),
        el("label", "Note", el("textarea", name="note", rows="2", maxlength="500")),
        el("label", "Your name", el("input", name="by", required=True, maxlength="100")),
        el("p", el("button", "Keep this region", class_="main-button")),
        class_="decide",
    )


def _render_list(desk: Desk, drawn: tuple[Annotation, ...], row: int) -> Html:
    own = [
        (n, one)
        for n, one in enumerate(drawn)
        if desk.viewer.site is None or one.holds_at(desk.viewer.site)
    ]
    if not own:
        return el("p", "Nothing yet.", class_="soft")
    items = []
    for number, one in own[-200:]:
        where = "all of it" if one.is_whole else ", ".join(f"{100 * v:.0f} %" for v in one.box)
        about = one.image or (f"every image of {one.site}" if one.site else "every image")
        words = f"{_USES[one.use]}. {about}: {where}. {one.note}"
        signed = el("small", f"{one.by}, {one.at}") if one.by else None
        form = el(
            "form",
            el("input", type="hidden", name="number", value=number),
            el("input", type="hidden", name="row", value=row),
            el("input", type="hidden", name="digest", value=one.model_dump_json()),
            el("button", "Remove", class_="small"),
            method="post",
            action=f"{desk.address}/unannotate",
        )
        items.append(el("li", el("span", words, signed), form))
    return el("ul", *items, class_="regions")


def answer_add(request: Request, desk: Desk) -> Response:
    """Keep a region that was drawn."""
    fields = read_fields(request)
    row, _ = choose_row(desk, read_first(fields, "row"))
    by, region = read_name(fields), read_region(fields)
    use, about = read_first(fields, "use"), read_first(fields, "about")
    if region is None or use not in _USES or about not in _ABOUT:
        raise ConfigError("a region needs its four edges, and what it holds for")
    federation = desk.load_federation()
    if about == "all" and desk.viewer.site is not None:
        about = "site"  # a site speaks for itself
    height, width = federation.images.images.shape[1:3]
    scale = (width, height, width, height)
    x0, y0, x1, y1 = (min(1.0, max(0.0, v / s)) for v, s in zip(region, scale))
    if not (x0 < x1 and y0 < y1):
        raise ConfigError("this region lies outside of the image")
    try:
        one = Annotation(
            box=(x0, y0, x1, y1),
            image=str(federation.images.names[row]) if about == "image" else "",
            site="" if about == "all" else find_site(federation, row),
            use="nothing" if use == "nothing" else "training",
            note=read_first(fields, "note", 500),
            by=by,
            at=stamp_now(),
        )
    except ValueError as err:
        raise ConfigError(f"this cannot be kept ({err})") from None
    desk.store.add(one)
    return RedirectResponse(f"{desk.address}/annotate?row={row}", 303)


def answer_remove(request: Request, desk: Desk) -> Response:
    """Take a region away."""
    fields = read_fields(request)
    number, text = read_first(fields, "number", 8), read_first(fields, "digest", 20_000)
    try:
        one, at = Annotation.model_validate_json(text), int(number)
    except ValueError:
        raise ConfigError("there is no such annotation") from None
    if desk.viewer.site is not None and not one.holds_at(desk.viewer.site):
        raise ConfigError("there is no such annotation")
    desk.store.remove(at, one)
    row = read_first(fields, "row", 12)
    query = f"?row={row}" if row.isascii() and row.isdecimal() else ""
    return RedirectResponse(f"{desk.address}/annotate{query}", 303)


def answer_file(_: Request, desk: Desk) -> Response:
    """The annotations as JSON, those of the looking site only."""
    if not desk.may_see:
        raise DataError("names of images are not shown", hint="Start with --site NAME.")
    site = desk.viewer.site
    lines = [
        one.model_dump_json(exclude_defaults=True)
        for one in desk.store.read()
        if site is None or one.holds_at(site)
    ]
    return Response(f'{{"annotations": [{", ".join(lines)}]}}', media_type="application/json")
