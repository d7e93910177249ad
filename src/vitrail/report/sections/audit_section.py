"""The section on the audit: verdicts by site and class, the place, counterfactuals, readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from vitrail.audit.told_figures import AT_A_SITE, read_told_figures
from vitrail.report.blocks import Block, Figure, FoldedTable, MissingNote, ViewChoice
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.chart_rows import Dot, draw_dots
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_percent, format_value
from vitrail.report.charts.verdict_signs import choose_sign, draw_legend, draw_verdict
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.html_table import Column, Table
from vitrail.report.pages.audit_words import NEITHER, READINGS, format_p_value
from vitrail.report.pages.page_elements import draw_empty_frame
from vitrail.report.pages.remedy_table import render_trial
from vitrail.report.run_record import AUDIT, RunRecord
from vitrail.report.sections.audit_pictures import FindingPicture, render_finding_picture

AuditJson = Mapping[str, Any]
_DOUBTED = 4  # findings that are told at length


def make_audit_blocks(record: RunRecord, pictures: Sequence[FindingPicture]) -> tuple[Block, ...]:
    """What the audit's file says; `pictures` are pictures that the reader may see."""
    audit = record.results.get(AUDIT)
    if audit is None and record.run.end == "coordinator":
        return _make_told_blocks(record)
    if audit is None:
        return (
            MissingNote(
                format_html(
                    "No audit was made of this run. {} says which site taught the model something "
                    "it should not know; it needs a model with parts and at least two sites.",
                    el("code", f"vitrail audit {record.name}"),
                )
            ),
        )
    doubted = sorted(
        (f for f in list_findings(audit) if f["verdict"] != "clear"), key=lambda f: -f["score"]
    )
    return (
        _render_headline(audit, doubted),
        _make_matrix(record, audit),
        draw_legend(),
        *(_render_finding(record, finding, pictures) for finding in doubted[:_DOUBTED]),
        *_make_trial_blocks(audit),
        *_make_picture_blocks(record, pictures, doubted),
        *_make_alarm_blocks(record, audit),
        FoldedTable("Every class of every site, in numbers", _make_table(record, audit)),
        _render_meaning(audit),
    )


def _make_trial_blocks(audit: AuditJson) -> tuple[Block, ...]:
    """Remedies that were tried with the audit."""
    table = render_trial(audit.get("trial"))
    return () if table is None else (table,)


def _make_told_blocks(record: RunRecord) -> tuple[Block, ...]:
    """What the sites told a coordinator, joined; it has no images for a verdict."""
    figures = read_told_figures(record.run)
    if figures is None:
        return (
            MissingNote(
                format_html(
                    "No site told figures for an audit, and the coordinator has no images. Each "
                    "site can audit its own folder of the run, where the model has parts."
                )
            ),
        )
    lead = format_html(
        "The sites told means of one half of their images, and histograms of the other half along "
        "directions that these gave. A class that stands apart at one site may carry a mark "
        "there. {}",
        AT_A_SITE,
    )
    rows = tuple(
        (t.site, t.label, t.contrast.verdict, t.contrast.effect, t.place, t.contrast.p_value)
        for t in figures.contrasts
    )
    columns = (
        Column("site"),
        Column("class"),
        Column("verdict", lambda v: draw_verdict(v)),
        Column("effect", partial(format_value, places=1), "Standard deviations", number=True),
        Column("where"),
        Column("p, corrected", format_p_value, number=True),
    )
    table = Table(f"{record.name}-told", "What the sites told for the audit", columns, rows)
    if not figures.silent:
        return el("p", lead), table
    silent = f"Nothing that compares came from {', '.join(figures.silent)}."
    return el("p", lead), table, el("p", silent, class_="soft")


def list_findings(audit: AuditJson) -> list[dict[str, Any]]:
    """All findings of an audit, each with its site."""
    return [
        {**finding, "site": site["site"]} for site in audit["sites"] for finding in site["classes"]
    ]


def summarize_verdict(audit: AuditJson) -> tuple[str, Html]:
    """The verdict on the whole, and the sentence that says it."""
    findings = list_findings(audit)
    if not findings:
        return "untested", format_html("Nothing could be tested: too few images of each class.")
    worst = max(
        findings, key=lambda f: (f["verdict"] == "biased", f["verdict"] != "clear", f["score"])
    )
    if worst["verdict"] == "biased":
        return "biased", format_html("Bias found: {} at {}", worst["class"], worst["site"])
    if worst["verdict"] in ("suspect", "differs"):
        text = "Nothing biased, but a difference: {} at {}"
        return worst["verdict"], format_html(text, worst["class"], worst["site"])
    skipped = sum(len(site.get("skipped", ())) for site in audit["sites"])
    untested = f"; {skipped} more had too few images to be tested" if skipped else ""
    return "clear", format_html(
        "No bias seen ({} tests, one for each class of each site{})", len(findings), untested
    )


def _render_headline(audit: AuditJson, doubted: Sequence[AuditJson]) -> Html:
    verdict, words = summarize_verdict(audit)
    explanation = None
    if not doubted and list_findings(audit):
        explanation = el(
            "p",
            "At no place of the image, nor in it as a whole, does a class stand out at one site as "
            "it does at no other. That is no proof that there is no bias: weak marks and small "
            "sites are missed.",
        )
    return join([el("p", draw_verdict(verdict, words), class_="headline"), explanation])


def _make_matrix(record: RunRecord, audit: AuditJson) -> Figure:
    sites = [site["site"] for site in audit["sites"]]
    classes = list(record.run.classes)
    findings = {(f["site"], f["class"]): f for f in list_findings(audit)}
    cells = [[_make_cell(findings.get((site, name))) for name in classes] for site in sites]

    def draw(width: float) -> Drawing:
        return draw_matrix(sites, classes, cells, "Verdicts by site and class", width)

    caption = format_html(
        "The score of each class at each site: how far it lies from the same class at the other "
        "sites, in units of what all other pairs predict; beyond 1 is outside. Empty: too few "
        "images."
    )
    return Figure(f"{record.name}-audit", caption, draw)


def _make_cell(finding: AuditJson | None) -> Cell:
    if finding is None:
        return Cell(None, "", "not tested")
    sign, role = choose_sign(finding["verdict"])
    score = format_value(finding["score"], 1)
    return Cell(0.0, score, f"{finding['verdict']}, score {score}", sign, role)


def _render_finding(
    record: RunRecord, finding: AuditJson, pictures: Sequence[FindingPicture]
) -> Html:
    """One doubted class at length: what, where, how sure, what follows, both readings."""
    facts = [
        ("Site", el("b", finding["site"])),
        ("Class", el("b", finding["class"])),
        ("Place", finding["where"]),
        (
            "What stands out",
            _describe_contrast(finding),
        ),
        (
            "How sure",
            format_html("p {}, corrected for all tests", format_p_value(finding["p_value"])),
        ),
        ("Without the place", _describe_covered(finding)),
        ("Put into other images", _describe_swapped(finding)),
        (
            "What to do",
            format_html("{}. People decide, not this page.", el("b", finding["action"])),
        ),
    ]
    if finding.get("prototypes"):
        units = ", ".join(str(unit) for unit in finding["prototypes"])
        facts.insert(-1, ("Looked at by", f"parts {units} of the shared model"))
    rows = [part for name, text in facts for part in (el("dt", name), el("dd", text))]
    shown = any(s.site == finding["site"] and s.label == finding["class"] for s in pictures)
    place = None if shown else _render_place(record, finding)
    head = el("h3", draw_verdict(finding["verdict"], f"{finding['class']} at {finding['site']}"))
    return join([head, place, el("dl", *rows, class_="facts"), _render_readings(finding)])


def _describe_contrast(finding: AuditJson) -> Html:
    """How far the class lies from the other sites'; audits of before compared areas."""
    if "effect" not in finding:
        text = "area under the curve of {} here and {} at the other sites (0.5 is chance)"
        return format_html(
            text, format_value(finding["here"], 2), format_value(finding["elsewhere"], 2)
        )
    return format_html(
        "the images lie {} standard deviations from the same class at the other sites; by all "
        "other classes and sites up to {} would be no surprise. It shows in: {}",
        el("b", format_value(finding["effect"], 1)),
        format_value(_get_limit(finding), 1),
        str(finding.get("family", "")),
    )


def _get_limit(finding: AuditJson) -> float:
    """The end of the prediction interval; not a number where there are too few pairs."""
    limit = finding.get("limit")
    return float("nan") if limit is None else float(limit)


def _render_place(record: RunRecord, finding: AuditJson) -> Html | None:
    """Where the place lies, in a frame without a pixel of any image."""
    side = int(record.run.card["image_size"])
    box = finding.get("box")
    if box is None:
        return None
    width, height = max(side, *box[0::2]), max(side, *box[1::2])
    x0, y0, x1, y1 = (int(v) for v in box)
    label = f"the place in an empty frame: pixels {x0} to {x1} across, {y0} to {y1} down"
    drawn = draw_empty_frame((height, width), [], (x0, y0, x1, y1), label)
    caption = el("figcaption", "The place, in a frame of the image's size. The image is not shown.")
    return el("div", el("figure", drawn, caption), class_="grid")


def _describe_covered(finding: AuditJson) -> Html:
    parts = []
    for name, words in (("local", "the site's own model"), ("shared", "the shared model")):
        shares = finding["covered"][name]
        parts.append(
            format_html(
                "{} is right in {} of the images of the class instead of {}",
                words,
                el("b", format_percent(shares["without"], 0)),
                format_percent(shares["accuracy"], 0),
            )
        )
    return join(parts, "; ")


def _describe_swapped(finding: AuditJson) -> Html:
    moved = finding["flipped"]
    return format_html(
        "{} more of them are taken for the class by the site's own model, {} by the shared one",
        el("b", format_percent(moved["local"], 0)),
        el("b", format_percent(moved["shared"], 0)),
    )


def _render_readings(finding: AuditJson) -> Html:
    """The reading that the numbers support, or those that are left."""
    decided = finding["reading"] in READINGS
    cards = []
    for name in [finding["reading"]] if decided else ["shortcut", "minority"]:
        title, text = READINGS[name]
        yes = decided
        head = f"{title}: what the numbers support" if yes else title
        cards.append(el("div", el("h4", head), text, class_="yes" if yes else None))
    neither = el("p", NEITHER) if finding["reading"] == "open" else None
    return join([neither, el("div", *cards, class_="readings")])


def _make_picture_blocks(
    record: RunRecord, pictures: Sequence[FindingPicture], doubted: Sequence[AuditJson]
) -> tuple[Block, ...]:
    if not pictures:
        return ()
    wanted = {(f["site"], f["class"]) for f in doubted}
    order = sorted(pictures, key=lambda s: (s.site, s.label) not in wanted)
    views: tuple[tuple[str, tuple[Block, ...]], ...] = tuple(
        (f"{s.site}: {s.label}", (render_finding_picture(s, f"{record.name}-{at}"),))
        for at, s in enumerate(order)
    )
    return (
        el("h3", "What the models look at, and what happens without it"),
        ViewChoice(f"{record.name}-sight", "Site and class", views),
    )


def _make_alarm_blocks(record: RunRecord, audit: AuditJson) -> tuple[Block, ...]:
    values = []
    for site in audit["sites"]:
        gap, spread = float(site["alarm"]["gap"]), float(site["alarm"]["spread"])
        values.append(Dot(site["site"], gap, gap - 2 * spread, gap + 2 * spread))
    if not values:
        return ()

    def draw(width: float) -> Drawing:
        format_share = partial(format_percent, places=0)
        title = "Shared model minus own model, by site"
        return draw_dots(values, title, "difference in accuracy", width, format_share, zero=0.0)

    caption = format_html(
        "Accuracy of the shared model minus that of the site's own, on the site's images, with "
        "twice its standard error. Far below zero means that the shared model learned elsewhere "
        "what does not hold here."
    )
    head = el("h3", "The alarm an unbiased site hears")
    return head, Figure(f"{record.name}-alarm", caption, draw)


def _make_table(record: RunRecord, audit: AuditJson) -> Table:
    columns = (
        Column("class"),
        Column("site"),
        Column("verdict", lambda v: draw_verdict(v)),
        Column("score", partial(format_value, places=1), "In standard errors", number=True),
        Column("p, corrected", format_p_value, number=True),
        Column("effect", partial(format_value, places=1), "In standard deviations", number=True),
        Column("limit", partial(format_value, places=1), "Of other pairs", number=True),
        Column("own model, right", partial(format_percent, places=0), number=True),
        Column("place covered", partial(format_percent, places=0), number=True),
        Column("place"),
    )
    rows = tuple(
        (
            f["class"],
            f["site"],
            f["verdict"],
            f["score"],
            f["p_value"],
            float(f.get("effect", float("nan"))),
            _get_limit(f),
            f["covered"]["local"]["accuracy"],
            f["covered"]["local"]["without"],
            f["where"],
        )
        for f in sorted(list_findings(audit), key=lambda f: -cast(float, f["score"]))
    )
    skipped = [f"{name} at {s['site']}" for s in audit["sites"] for name in s.get("skipped", ())]
    note = f"Not tested, too few images: {', '.join(skipped[:40])}." if skipped else ""
    return Table(f"{record.name}-audit", "Findings, the highest score first", columns, rows, note)


def _render_meaning(audit: AuditJson) -> Html:
    about = str(audit.get("null") or "").rstrip(".")
    source = f" Null: {about}." if about else ""
    return el(
        "p",
        format_html(
            "A p-value is corrected (Holm) for every class of every site.{} It is exact for "
            "the claim that the class looks alike at all sites. Honest sites differ too: biased is "
            "only what also lies outside the interval that all other classes and sites predict; "
            "a small p-value alone reads differs. It is not the chance that a site is honest, not "
            "a measure of harm, and no proof of absence.",
            source,
        ),
        class_="soft",
    )
