"""The page for a data-protection officer: what was processed, what left, under which guarantee."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vitrail.engine.plan import make_plan
from vitrail.engine.release_summary import format_size
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import ATTACK
from vitrail.runs.exported_card import summarize_guarantee
from vitrail.runs.ledgers import SiteLedger, read_ledgers
from vitrail.runs.opened_run import Run

TO_FILL = "[to be filled in by the controller]"
_ENDS = {
    "simulation": "All sites were simulated on one machine, so no image left it. The figures show "
    "what would have left each site of a real federation.",
    "coordinator": "This is the coordinator's end of a real federation. What left a site stands in "
    "that site's own dossier.",
    "site": "This is one site's end of a real federation.",
}


def render_dossier(run: Run) -> str:
    """One page; what the software cannot know is marked to be filled in."""
    guarantee = summarize_guarantee(run)
    lead = el("p", _ENDS[run.end])
    return render_page(
        f"Data-protection dossier of {run.path.name}",
        lead,
        [
            _section(
                "Purpose",
                [
                    ("purpose", TO_FILL),
                    ("legal basis", TO_FILL),
                    ("controller and contact", TO_FILL),
                ],
            ),
            _section("What is processed", _describe_data(run)),
            _section("Recipients", _describe_recipients(run)),
            el("h2", "What left each site"),
            _make_ledger_table(run).to_html(),
            _section(
                "Guarantee",
                [
                    ("kind", guarantee["kind"]),
                    ("in words", guarantee["says"]),
                    ("epsilon", _or_none(guarantee["epsilon"])),
                    ("delta", _or_none(guarantee["delta"])),
                ],
            ),
            el("h2", "Attacks that were tried"),
            _describe_attacks(run),
            _section("Retention", _describe_retention(run)),
            _section("Who agreed", _describe_consent(run)),
        ],
    )


def _section(title: str, lines: list[tuple[str, str]]) -> Html:
    pairs = [part for name, text in lines for part in (el("dt", name), el("dd", text))]
    return el("section", el("h2", title), el("dl", *pairs))


def _describe_data(run: Run) -> list[tuple[str, str]]:
    roster = run.roster if run.end != "site" else {}
    counts = [facts["examples"] for facts in roster.values() if "examples" in facts]
    images = f"{sum(counts):.0f} training images" if counts else "not known at this end"
    side, channels = run.card["image_size"], run.card["channels"]
    return [
        ("kind of data", f"images, {side} x {side} pixels, {'grey' if channels == 1 else 'color'}"),
        ("images", images),
        ("categories of labels", ", ".join(run.classes)),
        ("categories of persons", TO_FILL),
        ("where images stay", _describe_place(run)),
    ]


def _describe_place(run: Run) -> str:
    """Where images are while the model is trained, by what the method's messages carry."""
    plan, _ = make_plan(run.loaded, run.classes, run.card["channels"])
    if plan.method.pooled:
        return "in one place: this method trains on all images together"
    names = [field.name for stage in plan.stages for field in stage.schema.up]
    if any(name.startswith("images/") for name in names):
        return "at the sites; masked or noised copies of some were shared with all sites"
    return "at the sites; the coordinator never holds one"


def _describe_recipients(run: Run) -> list[tuple[str, str]]:
    shared = run.card.get("shared") or {}
    return [
        ("sites", ", ".join(run.sites)),
        ("coordinator", "receives what left the sites" if run.end != "simulation" else "simulated"),
        ("what travels", str(shared.get("text", "see the ledgers"))),
        ("third parties", "none: the software sends nothing elsewhere"),
    ]


def _make_ledger_table(run: Run) -> Table:
    ledgers = read_ledgers(run.path)
    columns = ("site", "releases", "bytes", "with a proof", "epsilon", "delta", "protects")
    rows = tuple(_make_row(site) for site in ledgers.sites)
    note = "; ".join(ledgers.mismatches) or "The sums hold against what arrived."
    return Table("dossier", "From the ledgers", tuple(map(Column, columns)), rows, note)


def _make_row(site: SiteLedger) -> tuple[Any, ...]:
    formal, empirical = site.formal, site.empirical
    budgets = list(site.budgets)
    return (
        site.site,
        formal.releases + empirical.releases,
        format_size(formal.bytes + empirical.bytes),
        formal.releases,
        ", ".join(_or_none(b["epsilon"]) for b in budgets) or "none",
        ", ".join(f"{b['delta']:.1g}" for b in budgets) or "none",
        ", ".join(str(b["unit"]) for b in budgets) or "nothing by a proof",
    )


def _describe_attacks(run: Run) -> Html:
    file = run.path / ATTACK
    if not file.exists():
        return el("p", "None was recorded in this folder. `vitrail attack` tries some.")
    found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    names = [str(row.get("attack")) for row in found.get("rows", ()) if isinstance(row, Mapping)]
    return el("p", f"Tried: {', '.join(names) or 'see ' + ATTACK}. The figures are in the report.")


def _describe_retention(run: Run) -> list[tuple[str, str]]:
    size = sum(p.stat().st_size for p in run.path.rglob("*") if p.is_file())
    return [
        ("this folder", f"{format_size(size)}: models, figures, ledgers, logs"),
        ("recorded updates", "kept" if run.config.run.record_updates else "not kept"),
        ("how long", TO_FILL),
        ("how to delete", "vitrail forget RUN --yes; it says what remains elsewhere"),
    ]


def _describe_consent(run: Run) -> list[tuple[str, str]]:
    if run.end == "simulation":
        return [("consent", "a simulation: nobody was asked")]
    return [
        (
            "consent",
            "each site's operator agrees to the terms before its first turn; when, is in "
            "that site's log",
        ),
        ("signed by", TO_FILL),
    ]


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
