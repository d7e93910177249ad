"""The section on the audit: verdicts by site and class, the place, counterfactuals, readings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from vitrail.audit.told_figures import AT_A_SITE, read_told_figures
from vitrail.report.blocks import Block, Figure, FoldedTable, MissingNote, ViewChoice
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.chart_rows import Dot, draw_dots
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_percent, format_value
from vitrail.report.charts.verdict_signs import choose_sign, draw_legend, draw_verdict
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.html_table import Column, Table
from vitrail.report.pages.audit_evidence import FindingPicture, render_finding_picture
from vitrail.report.pages.audit_words import (
    NO_PROOF,
    AuditJson,
    format_p_value,
    list_doubted,
    list_findings,
    render_facts,
    render_readings,
    write_headline,
)
from vitrail.report.pages.page_elements import draw_empty_frame
from vitrail.report.pages.remedy_table import render_trial
from vitrail.report.run_record import AUDIT, RunRecord

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
                    "it should not know; it needs at least two sites.",
                    el("code", f"vitrail audit {record.name}"),
                )
            ),
        )
    doubted = list_doubted(audit)
    return (
        _render_headline(audit),
        _make_matrix(record, audit),
        draw_legend(),
        *(_render_finding(record, audit, finding, pictures) for finding in doubted[:_DOUBTED]),
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


def _render_headline(audit: AuditJson) -> Html:
    verdict, words = write_headline(audit)
    explanation = el("p", NO_PROOF) if verdict == "clear" else None
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
    record: RunRecord,
    audit: AuditJson,
    finding: AuditJson,
    pictures: Sequence[FindingPicture],
) -> Html:
    """One doubted class at length: what, where, how sure, what follows, both readings."""
    shown = any(s.site == finding["site"] and s.label == finding["class"] for s in pictures)
    place = None if shown else _render_place(record, finding)
    head = el("h3", draw_verdict(finding["verdict"], f"{finding['class']} at {finding['site']}"))
    return join([head, place, render_facts(audit, finding), render_readings(finding["reading"])])


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
