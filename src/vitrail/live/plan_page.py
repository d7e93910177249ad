"""The page of a planned run: the terms, the policy, what would leave, image by image; then the
answer. Nothing leaves because somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from vitrail.engine.release_summary import summarize_release
from vitrail.engine.resolve_config import resolve_config
from vitrail.engine.run import plan_run
from vitrail.errors import ConfigError, VitrailError
from vitrail.live.annotation_store import is_withheld
from vitrail.live.draft import Draft
from vitrail.live.form_fields import append_line, read_fields, read_first, read_name, stamp_now
from vitrail.live.layout import render_live_page
from vitrail.live.lifetime_table import list_forecast, render_lifetime
from vitrail.report.html import Html, el
from vitrail.report.pages.preview_page import list_preview_facts, render_preview_pictures
from vitrail.report.preview_sharing import Preview

_SHOWN = 24  # images of one page
CONSENTS = "consents.jsonl"


def answer_plan(request: Request, draft: Draft) -> Response:
    """What would leave a site under some terms."""
    which = request.query_params.get("terms", "")
    body: list[Html | None] = [
        _render_choice(draft, which),
        el("section", el("h2", "The terms"), _render_lines(list_terms_lines(draft, which))),
        _render_policy(draft, which),
        _render_budget(draft, which),
        el("section", el("h2", "Images that would leave"),
           _follow_sharing(draft, which, _read_page(request)), id="images"),
        _render_consent(draft, which),
    ]  # fmt: skip
    lead = el("p", "What would leave this site, before anything does.", class_="lead")
    return HTMLResponse(
        render_live_page("Before the run", "", draft.address, body, lead, draft.pages)
    )


def _read_page(request: Request) -> int:
    text = request.query_params.get("page", "1")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 6 else 1


def _render_choice(draft: Draft, which: str) -> Html | None:
    names = list(draft.list_terms())
    if len(names) < 2:
        return None
    links = [
        el("li", el("a", name, href=f"{draft.address}?{urlencode({'terms': name})}",
                    aria_current="page" if name == (which or names[0]) else None))
        for name in names
    ]  # fmt: skip
    return el("section", el("h2", "Terms that are here"), el("ul", *links))


def list_terms_lines(draft: Draft, which: str) -> list[str]:
    """What the terms mean here, one line each."""
    loaded = draft.load(which)
    federation = draft.load_federation()
    if draft.site is not None:
        from vitrail.flower.site.consent import summarize_terms

        terms = draft.list_terms()
        chosen = dict(terms[which or next(iter(terms))])
        site = federation.sites[draft.site.name]
        patients = federation.count_patients().get(draft.site.name)
        return summarize_terms(draft.site, chosen, len(site.train), patients)
    loaded = replace(loaded, config=resolve_config(loaded))
    plan, _ = plan_run(loaded, federation)
    run, shared = loaded.config.run, summarize_release(plan)
    fields = dict.fromkeys(f.name for stage in plan.stages for f in stage.schema.up_kept)
    return [
        f"method {loaded.config.method.name}, {run.rounds} rounds, {run.local_epochs} local "
        f"epochs, backbone {loaded.config.model.backbone}, {len(federation.sites)} sites",
        *shared.lines(),
        f"in all: {shared.text()}",
        f"defenses: {', '.join(loaded.config.release.defenses) or 'none'}",
        f"secure sums: {'on' if loaded.config.release.secure_sum else 'off'}",
        f"beside the model leave, one by one: {', '.join(fields)}"
        if fields
        else "no image leaves a site",
    ]


def _render_lines(lines: Sequence[str]) -> Html:
    return el("ul", *(el("li", line) for line in lines))


def _render_policy(draft: Draft, which: str) -> Html | None:
    """Each line of the site's policy: kept, or broken and how."""
    if draft.site is None:
        return None
    from vitrail.flower.run_terms import make_agreed_plan
    from vitrail.flower.site.policy_check import find_breaches

    policy, site = draft.site.policy, draft.site.name
    plan, _ = make_agreed_plan(draft.load(which))
    examples = len(draft.load_federation().sites[site].train)
    broken = list(find_breaches(policy, plan, site, examples))
    names = {breach.line for breach in broken}
    kept = [line for line in policy.describe() if line.split(".")[1].split()[0] not in names]
    items = [
        *(el("li", el("b", "breaks "), f"policy.{b.line}: {b.says}", class_="bad") for b in broken),
        *(el("li", "keeps ", line) for line in kept),
    ]
    none = el("p", "This site has no policy: nothing but your answer keeps a run away.")
    return el("section", el("h2", "Your policy"), el("ul", *items) if items else none)


def _render_budget(draft: Draft, which: str) -> Html | None:
    if draft.site is None:
        return None
    lines = list_forecast(draft.site, draft.load(which), draft.load_federation())
    return el(
        "section",
        el("h2", "Budget over the lifetime of the images"),
        render_lifetime(draft.site),
        _render_lines(lines),
    )


def _follow_sharing(draft: Draft, which: str, page: int) -> Html:
    """The preview; while it is being made, the page asks again until it is there."""
    follow = f"{draft.address}/sharing?{urlencode({'terms': which})}"
    return el(
        "div",
        render_sharing(draft, which, page),
        id="sharing",
        data_live=follow if draft.job.is_running else None,
        data_until="form,.note",
    )


def render_sharing(draft: Draft, which: str, page: int = 1) -> Html:
    """The images that would be shared, each with a tick box; or how far they are."""
    job = draft.job
    query = f"?{urlencode({'terms': which})}" if which else ""
    if job.is_running:
        return el("p", "Being made up: the site trains alone first.", class_="soft")
    button = el(
        "button", "Make up what would be shared", type="button", class_="main-button",
        data_post=f"{draft.address}/preview{query}", id="preview",
    )  # fmt: skip
    if job.error:
        return el("div", el("p", job.error, class_="note"))
    if job.result is None:
        return el("p", button)
    if not draft.may_see:
        return el("p", "Images of sites are not shown: start with --site NAME.", class_="missing")
    return _render_images(draft, job.result, page, which)


def _render_images(draft: Draft, preview: Preview, page: int, which: str) -> Html:
    federation = draft.load_federation()
    names = federation.images.names
    held = federation.sites[preview.site].train
    withheld = {o.image for o in draft.store.read() if is_withheld(o) and o.holds_at(preview.site)}
    unticked = [int(row) for row in held if str(names[row]) in withheld]
    rows = [*(int(row) for row in preview.chosen.rows), *unticked]
    pages = max(1, -(-len(rows) // _SHOWN))
    page = min(page, pages)
    start = (page - 1) * _SHOWN
    places = {int(row): at for at, row in enumerate(preview.chosen.rows)}
    cards = [
        _render_card(draft, preview, row, places.get(row), str(names[row]) not in withheld)
        for row in rows[start : start + _SHOWN]
    ]
    turn = [
        el("a", f"page {n}", href=f"?{urlencode({'page': n, 'terms': which})}#images")
        for n in range(1, pages + 1)
        if n != page
    ][:40]
    form = el(
        "form",
        el(
            "fieldset",
            el("legend", "Images of this page: only what is ticked is shared"),
            el("ul", *cards, class_="cards shares"),
            class_="shares-box",
        ),
        el("input", type="hidden", name="terms", value=which),
        el("label", "Your name ", el("input", name="by", required=True, maxlength="100")),
        el("p", el("button", "Share only what is ticked", class_="main-button")),
        method="post",
        action=f"{draft.address}/share",
        class_="decide",
    )
    facts = el("ul", *(el("li", text) for text in list_preview_facts(preview)))
    said = f"{len(preview.chosen.rows)} images would be shared, {len(unticked)} are withheld. "
    other = "The federation's model will choose other pixels; the same is done to them."
    return el(
        "div",
        el("p", said, other, id="shared-count"),
        facts,
        el("p", *(el("span", link, " ") for link in turn)) if turn else None,
        form,
    )


def _render_card(draft: Draft, preview: Preview, row: int, at: int | None, ticked: bool) -> Html:
    box = el("input", type="checkbox", name="share", value=row, checked=ticked)
    if at is None:
        picture = el("img", src=f"{draft.address}/square?row={row}", alt=f"image {row}")
        pictures, words = el("span", picture, class_="pair"), "withheld"
    else:
        pictures = render_preview_pictures(preview, at)
        words = preview.classes[int(preview.chosen.labels[at])]
    query = urlencode({"row": row, "use": "training"})
    redraw = el("a", "draw what must not leave", href=f"{draft.address}/annotate?{query}")
    return el(
        "li",
        el("input", type="hidden", name="shown", value=row),
        pictures,
        el("label", box, f" share: {words}", class_="tick"),
        redraw,
    )


def answer_preview(request: Request, draft: Draft) -> Response:
    """Begin to make up what would be shared."""
    draft.start_preview(request.query_params.get("terms", ""))
    return HTMLResponse(render_sharing(draft, request.query_params.get("terms", "")))


def answer_sharing(request: Request, draft: Draft) -> Response:
    """The part of the page that follows the preview."""
    return HTMLResponse(
        render_sharing(draft, request.query_params.get("terms", ""), _read_page(request))
    )


def answer_share(request: Request, draft: Draft) -> Response:
    """Withhold what is not ticked, of what was shown."""
    fields = read_fields(request)
    by, which = read_name(fields), read_first(fields, "terms")
    preview = draft.job.result
    if preview is None or not draft.may_see:
        raise ConfigError("make up what would be shared first")
    federation = draft.load_federation()
    own = set(federation.sites[preview.site].train.tolist())
    shown, shared = (_read_rows(fields.get(key, []), own) for key in ("shown", "share"))
    names = federation.images.names
    draft.store.set_withheld(
        preview.site,
        [str(names[row]) for row in shown],
        [str(names[row]) for row in shared],
        by,
        stamp_now(),
    )
    draft.start_preview(which)
    query = f"?{urlencode({'terms': which})}" if which else ""
    return RedirectResponse(f"{draft.address}{query}#images", 303)


def _read_rows(texts: Sequence[str], own: set[int]) -> list[int]:
    rows = [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 12]
    if len(rows) != len(texts) or not own.issuperset(rows):
        raise ConfigError("these are not images of this site")
    return rows


def _render_consent(draft: Draft, which: str) -> Html | None:
    """Yes or no to terms that wait for an answer."""
    if draft.site is None:
        return None
    waiting = {p.run: p for p in draft.site.proposals()}
    run = which or next(iter(waiting), "")
    if run not in waiting:
        return None
    form = el(
        "form",
        el("input", type="hidden", name="run", value=run),
        el("input", type="hidden", name="digest", value=waiting[run].digest),
        el("label", "Your name", el("input", name="by", required=True, maxlength="100")),
        el("div",
           el("button", "Agree: this site takes part", name="yes", value="1",
              class_="main-button"),
           el("button", "Say no", name="yes", value="0"), class_="buttons"),
        method="post", action=f"{draft.address}/consent", class_="decide",
    )  # fmt: skip
    note = "It waits for an answer; no answer is a no. Your answer is kept with name and time."
    return el("section", el("h2", f"Your answer to {run}"), el("p", note, class_="soft"), form)


def answer_consent(request: Request, draft: Draft) -> Response:
    """Keep the operator's answer to exactly the terms that were on the page."""
    fields = read_fields(request)
    by, run = read_name(fields), read_first(fields, "run", 1000)
    digest, yes = read_first(fields, "digest"), read_first(fields, "yes")
    if draft.site is None or yes not in ("0", "1"):
        raise ConfigError("there is nothing to agree to here")
    proposal = next((p for p in draft.site.proposals() if p.run == run), None)
    if proposal is None or proposal.digest != digest:
        raise ConfigError("these terms no longer wait for an answer: load the page again")
    line = {"run": run, "digest": digest, "yes": yes == "1", "by": by, "at": stamp_now()}
    append_line(draft.site.folder / CONSENTS, line)
    draft.site.decide(proposal, yes == "1")
    return RedirectResponse(draft.address, 303)


def describe_draft(draft: Draft) -> str:
    """What the list of planned runs says of one."""
    try:
        if draft.site is not None:
            waiting = len(draft.site.proposals())
            return f"site {draft.site.name}: {waiting} waiting for an answer"
        return f"simulation, {draft.load().config.method.name}"
    except (VitrailError, OSError) as err:
        return f"cannot be read: {err}"
