"""The page Audit: findings with pictures, an expert's decision on each, and the remedy played.

A decision is a line in `decisions.jsonl` of the run folder, with name and time. The audit with all
decisions applied is `audit-decided.json`, which `vitrail run --debias` obeys.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from vitrail.child_python import build_command, build_environment
from vitrail.errors import ConfigError, RunError, VitrailError
from vitrail.files import write_json
from vitrail.live.catalog import LiveRun
from vitrail.live.form_fields import (
    append_line,
    read_fields,
    read_first,
    read_lines,
    read_name,
    read_region,
    stamp_now,
)
from vitrail.live.layout import render_live_page
from vitrail.registry import FOLDER_WORDS
from vitrail.report.charts.scale import format_percent, format_value
from vitrail.report.charts.verdict_signs import draw_verdict
from vitrail.report.html import Html, el, join
from vitrail.report.pages.audit_evidence import render_finding_picture
from vitrail.report.pages.audit_words import format_p_value, list_findings
from vitrail.report.pages.page_elements import draw_empty_frame
from vitrail.report.run_record import AUDIT
from vitrail.report.sections.audit_pictures import read_finding_pictures
from vitrail.runs.opened_run import Run

DECISIONS, DECIDED, REMEDIES = "decisions.jsonl", "audit-decided.json", "remedies"
_VERDICTS = {"biased": "confirm: biased", "clear": "reject: no bias", "suspect": "undecided"}
_MOST = 20  # findings on the page


def read_decisions(folder: Path) -> list[dict[str, Any]]:
    """Every decision, the newest last."""
    return read_lines(folder / DECISIONS)


def decide(folder: Path, decision: Mapping[str, Any]) -> None:
    """Keep a decision, and the audit as it stands with all of them."""
    append_line(folder / DECISIONS, decision)
    audit = json.loads((folder / AUDIT).read_text(encoding="utf-8"))
    write_json(folder / DECIDED, apply_decisions(audit, read_decisions(folder)))


def apply_decisions(audit: dict[str, Any], decisions: list[dict[str, Any]]) -> dict[str, Any]:
    """The audit with an expert's verdicts, regions and notes in the place of its own."""
    decided = copy.deepcopy(audit)
    for decision in decisions:
        for site in decided["sites"]:
            for entry in site["classes"]:
                if (site["site"], entry["class"]) == (decision["site"], decision["class"]):
                    entry["verdict"] = decision["verdict"]
                    entry.pop("plan", None)  # a person who decides knows better than the reading
                    entry["box"] = decision["box"] or entry.get("box")
                    entry["decided"] = {k: decision[k] for k in ("by", "at", "note")}
    return decided


def answer_audit(_: Request, live: LiveRun) -> Response:
    """The findings of a run, the most suspicious first."""
    audit = live.read().results.get(AUDIT)
    if audit is None:
        sentence = f"Nobody audited this run yet: `vitrail audit {live.name}` does."
        body: list[Html | None] = [el("section", el("p", sentence, class_="missing"))]
        return HTMLResponse(render_live_page("Audit", "audit", live.address, body))
    newest = {(d["site"], d["class"]): d for d in read_decisions(live.path)}
    entries = sorted(
        list_findings(audit),
        key=lambda entry: (entry["verdict"] == "clear", -float(entry.get("score") or 0)),
    )
    pictures = _draw_pictures(live)
    shown = [
        _render_finding(live, entry, newest.get((entry["site"], entry["class"])), pictures)
        for entry in entries[:_MOST]
    ]
    lead = el(
        "p",
        "Confirm or reject each finding, redraw its region, say why. People decide: the list is "
        "what a remedy obeys.",
        class_="lead",
    )
    files = [
        el(
            "a",
            "the audit with decisions, JSON",
            href=f"{live.address}/decided.json",
            download="",
        ),
        el("a", "decisions, JSON lines", href=f"{live.address}/decisions.jsonl", download=""),
    ]
    downloads = el("p", "Download ", join(files, " \N{MIDDLE DOT} "), class_="soft")
    body = [_render_remedy(live), *shown, el("section", downloads)]
    return HTMLResponse(render_live_page("Audit", "audit", live.address, body, lead))


def _draw_pictures(live: LiveRun) -> dict[tuple[str, str], Html]:
    """Pictures that were kept with the audit, where they may be shown."""
    if not live.may_see:
        return {}
    sites = live.viewer.list_readable_sites(live.read())
    kept = read_finding_pictures(live.run, sites)
    return {(p.site, p.label): render_finding_picture(p, f"f{at}") for at, p in enumerate(kept)}


def _render_finding(
    live: LiveRun,
    entry: Mapping[str, Any],
    decision: Mapping[str, Any] | None,
    pictures: Mapping[tuple[str, str], Html],
) -> Html:
    site = str(entry["site"])
    box = (decision or {}).get("box") or entry.get("box")
    side = int(live.run.card["image_size"])
    height = max(side, *(box[1::2] if box else [0]))
    width = max(side, *(box[0::2] if box else [0]))
    frame = draw_empty_frame((height, width), [], box, f"the region of {entry['class']} at {site}")
    decided = None
    if decision is not None:
        words = f"{decision['by']}, {decision['at']}: {_VERDICTS[decision['verdict']]}"
        note = f". {decision['note']}" if decision["note"] else ""
        decided = el("p", f"Decided by {words}{note}", class_="note")
    p = entry.get("p_value")
    facts = f"score {format_value(float(entry.get('score') or 0), 1)}"
    facts += "" if p is None else f", p {format_p_value(float(p))}"
    verdict = (decision or entry)["verdict"]
    chosen = verdict if verdict in _VERDICTS else "suspect"  # what differs is undecided
    head = el("h2", draw_verdict(verdict, f"{entry['class']} at {site}"))
    form = _render_form(live, site, str(entry["class"]), chosen, box)
    words = el("div", el("p", facts, class_="soft"), decided, form)
    picture = pictures.get((site, str(entry["class"])))
    stage = el("div", frame, class_="stage frame", data_draw=f"{width:g},{height:g}")
    hint = el("figcaption", "Drag to redraw the region.", class_="hint")
    shown = el("figure", stage, hint)
    return el("section", head, el("div", shown, words, class_="finding"), picture)


def _render_form(
    live: LiveRun, site: str, label: str, verdict: str, box: list[float] | None
) -> Html:
    options = [
        el("option", words, value=key, selected=key == verdict) for key, words in _VERDICTS.items()
    ]
    edges = []
    for at, name in enumerate(("left", "top", "right", "bottom")):
        value = "" if not box else f"{box[at]:g}"
        edges.append(el("label", name, el("input", type="number", name=name, value=value, min="0")))
    return el(
        "form",
        el("input", type="hidden", name="site", value=site),
        el("input", type="hidden", name="class", value=label),
        el("label", "Decision", el("select", *options, name="verdict")),
        el("div", *edges, class_="row", role="group", aria_label="Region in pixels"),
        el("label", "Note", el("textarea", name="note", rows="2", maxlength="2000")),
        el("label", "Your name", el("input", name="by", required=True, maxlength="100")),
        el("p", el("button", "Keep this decision", class_="main-button")),
        method="post",
        action=f"{live.address}/decide",
        class_="decide",
    )


def answer_decide(request: Request, live: LiveRun) -> Response:
    """Keep what a form says about a finding that is there and that may be seen."""
    fields = read_fields(request)
    verdict, by = read_first(fields, "verdict"), read_name(fields)
    if verdict not in _VERDICTS:
        raise ConfigError("a decision needs a verdict")
    audit = live.read().results.get(AUDIT)
    if audit is None:
        raise RunError("nobody audited this run yet", where=live.name)
    about = read_first(fields, "site", 10_000), read_first(fields, "class", 10_000)
    if about not in {(str(f["site"]), str(f["class"])) for f in list_findings(audit)}:
        raise ConfigError("the audit has no such finding", where=live.name)
    decide(
        live.path,
        {"site": about[0], "class": about[1], "verdict": verdict, "box": read_region(fields),
         "note": read_first(fields, "note", 2000), "by": by, "at": stamp_now()},
    )  # fmt: skip
    return RedirectResponse(f"{live.address}/audit", 303)


def _render_remedy(live: LiveRun) -> Html:
    """The button that plays the remedy, and before and after once it was played."""
    button = el(
        "button", "Play the remedy: weigh biased sites down", type="button", class_="main-button",
        data_post=f"{live.address}/remedy", id="remedy",
    )  # fmt: skip
    if not (live.path / DECIDED).exists():
        about = "Keep a decision first; then the remedy can be played."
        return el("section", el("h2", "Remedy"), el("p", about, class_="soft"))
    if not _is_remedy_started(live):
        return el("section", el("h2", "Remedy"), el("p", button))
    state = el("div", render_remedy_state(live), data_live=f"{live.address}/remedy-state")
    return el("section", el("h2", "Remedy: before and after"), state)


def _is_remedy_started(live: LiveRun) -> bool:
    """Whether the remedy was begun; one that failed before its first round can be begun again."""
    folder, log = live.path / REMEDIES / "weigh", live.path / REMEDIES / "weigh.log"
    if folder.exists():
        return True
    return log.exists() and b"vitrail:" not in log.read_bytes()


def render_remedy_state(live: LiveRun) -> Html:
    """Accuracy by class before and after, or how far the remedy is."""
    folder = live.path / REMEDIES / "weigh"
    log = live.path / REMEDIES / "weigh.log"
    try:
        after = LiveRun(f"{live.name}-remedy", folder, live.viewer)
        finished = after.run.finished
        done = after.run.round
    except VitrailError:
        finished, done = False, 0
    if not finished:
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        last = [line for line in text.splitlines() if line.startswith("vitrail:")][-1:]
        return el("p", last[0] if last else f"It is being played: round {done}.", class_="soft")
    rows = [
        el(
            "tr",
            el("th", name, scope="row"),
            el("td", format_percent(a)),
            el("td", format_percent(b)),
        )
        for name, a, b in _compare(live, after)
    ]
    heads = [el("th", head, scope="col") for head in ("class", "before", "after")]
    return el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="numbers")


def _compare(before: LiveRun, after: LiveRun) -> list[tuple[str, float | None, float | None]]:
    """Accuracy on the same test images, by class and in all."""
    rows, one = before.predict_tests()
    _, two = after.predict_tests()
    labels = before.load_federation().images.labels[rows]
    result: list[tuple[str, float | None, float | None]] = []
    for number, name in enumerate(before.run.classes):
        mine = labels == number
        shares = [
            float((p.argmax(1)[mine] == number).mean()) if mine.any() else None for p in (one, two)
        ]
        result.append((name, shares[0], shares[1]))
    totals = [float((p.argmax(1) == labels).mean()) if len(labels) else None for p in (one, two)]
    return [*result, ("all of them", totals[0], totals[1])]


def answer_remedy(_: Request, live: LiveRun) -> Response:
    """Train the run again with the remedy, in a process of its own."""
    if not (live.path / DECIDED).exists():
        raise RunError("keep a decision first", where=live.name)
    if Run(live.path).end != "simulation":
        raise RunError("a remedy is played where the whole federation is", where=live.name)
    folder = live.path / REMEDIES / "weigh"
    if _is_remedy_started(live):
        raise RunError("this remedy was played already", where=live.name)
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "weigh.log").open("wb") as out:
        subprocess.Popen(
            build_command(
                "vitrail", "run", str(live.path / "config.toml"), "--quiet", "--out", str(folder),
                "--debias", str(live.path / DECIDED), "--remedy", "weigh",
            ),
            env=build_environment(**FOLDER_WORDS),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    return HTMLResponse("")


def answer_remedy_state(_: Request, live: LiveRun) -> Response:
    """The part of the page that follows the remedy."""
    return HTMLResponse(render_remedy_state(live))


def answer_decided(_: Request, live: LiveRun) -> Response:
    """The audit with decisions."""
    audit = live.read().results.get(AUDIT)
    if audit is None:
        raise RunError("nobody audited this run yet", where=live.name)
    decided = apply_decisions(dict(audit), read_decisions(live.path))
    return Response(json.dumps(decided, default=_to_plain), media_type="application/json")


def answer_decisions(_: Request, live: LiveRun) -> Response:
    """Who decided what, and when."""
    seen = live.viewer.site
    own = [line for line in read_decisions(live.path) if seen in (None, line.get("site"))]
    text = "".join(json.dumps(line) + "\n" for line in own)
    return Response(text, media_type="application/x-ndjson")


def _to_plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)
