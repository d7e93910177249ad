"""The page What leaves: what was agreed, what leaves a site, the ledger, what attacks got."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from vitrail.live.catalog import LiveRun
from vitrail.live.layout import render_live_page
from vitrail.live.lifetime_table import render_lifetime
from vitrail.report.blocks import render_block
from vitrail.report.html import Html, el, join
from vitrail.report.sections.privacy_section import make_privacy_blocks


def answer_leaves(_: Request, live: LiveRun) -> Response:
    """What leaves each site, or the one that looks."""
    record, run = live.read(), live.run
    shared = run.card.get("shared") or {}
    release = run.config.release.model_dump(mode="json", exclude_defaults=True)
    facts = [
        ("Method", run.config.method.name),
        ("What leaves in a round", shared.get("text", "not recorded by this run")),
        ("Defenses", ", ".join(run.config.release.defenses) or "none"),
        ("Secure sums", "on" if run.config.release.secure_sum else "off"),
        ("Rounds", str(run.config.run.rounds)),
    ]
    terms = [item for name, text in facts for item in (el("dt", name), el("dd", text))]
    blocks = [render_block(block) for block in make_privacy_blocks(record)]
    links = [
        el(
            "a",
            f"ledger of {site}",
            href=f"{live.address}/ledger.json?{urlencode({'site': site})}",
            download="",
        )
        for site in run.sites
        if live.viewer.site in (None, site)
    ]
    body: list[Html | None] = [
        el("section", el("h2", "What was agreed"), el("dl", *terms, class_="facts"),
           el("details", el("summary", "The release section as it was run"),
              el("pre", json.dumps(release, indent=1)))),
        el("section", el("h2", "What left"), join(blocks)),
        None if live.site_config is None else el(
            "section", el("h2", "Budget over the lifetime of the images"),
            render_lifetime(live.site_config)),
        el("section", el("p", "Download ", join(links[:30], " \N{MIDDLE DOT} "), class_="soft")),
    ]  # fmt: skip
    lead = el("p", "What is about to leave a site, what has left, and under which guarantee.",
              class_="lead")  # fmt: skip
    return HTMLResponse(render_live_page("What leaves", "leaves", live.address, body, lead))


def answer_ledger(request: Request, live: LiveRun) -> Response:
    """The ledger of a site as JSON; with --site only that one's."""
    site = request.query_params.get("site", "")
    ledgers = live.read().ledgers
    if site not in ledgers or live.viewer.site not in (None, site):
        return Response("[]", 404, media_type="application/json")
    return Response(json.dumps(list(ledgers[site]), default=str), media_type="application/json")
