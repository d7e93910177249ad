"""The section "what the model looks for": prototypes or subspaces by class, and who agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitrail.audit.consensus import Agreement, averages_subspaces, read_agreement
from vitrail.explain.unit_list import Unit, list_units
from vitrail.models.heads.part_head import require_part_head
from vitrail.report.blocks import Block, Figure, FoldedTable, MissingNote, ViewChoice
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.chart_rows import Bar, draw_bars
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_count, format_value
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.html_table import Column, Table
from vitrail.report.photos import Photos
from vitrail.report.run_record import RunRecord
from vitrail.report.unit_patches import UnitPatch, find_unit_patches
from vitrail.report.viewer import ReportView

_PICTURED = 24  # classes beyond this many are told in numbers only
_PATCHES = 4  # pictures of a class that has one unit


def make_parts_blocks(
    record: RunRecord, view: ReportView | MissingNote, photos: Photos
) -> tuple[Block, ...]:
    """Units by class with the patches that the reader may see, agreement, duplicates."""
    agreed = _make_agreement_blocks(record)
    if isinstance(view, MissingNote):
        return (view, *agreed)
    if not view.explainer.has_parts:
        return (
            MissingNote(
                format_html(
                    "{} is a black box: its logits are not made of parts. Methods whose models "
                    "have parts: {}.",
                    record.run.config.method.name,
                    "myth-gm, myth-pm, indisco, tesnet, tesnet-stiefel, fedgrasp",
                )
            ),
        )
    head = require_part_head(view.explainer.model.network)
    units = list_units(head, record.run.classes)
    patches_per_unit = max(1, _PATCHES // max(1, len(units) // max(1, len(record.run.classes))))
    small = len(record.run.classes) <= _PICTURED
    shown = (
        find_unit_patches(view, patches_per_unit)
        if view.shows_pixels and small and len(view.train)
        else {}
    )
    noun = "subspace" if hasattr(head, "frames") else "prototype"
    views: tuple[tuple[str, tuple[Block, ...]], ...] = tuple(
        (name, (_render_class(name, [u for u in units if u.owner == at], shown, photos, noun),))
        for at, name in enumerate(record.run.classes)
    )
    summary = el("p", _write_summary(units, noun, view, bool(shown)))
    chosen = ViewChoice(f"{record.name}-class", "Class", views)
    return (summary, chosen, FoldedTable("Every unit", _make_table(record, units)), *agreed)


def _write_summary(units: Sequence[Unit], noun: str, view: ReportView, pictured: bool) -> Html:
    alive = [unit for unit in units if unit.alive]
    twins = sum(bool(unit.twins) for unit in alive)
    text = f"{format_count(len(units), noun)} of the {view.explainer.title}"
    if len(alive) < len(units):
        text += f", {len(units) - len(alive)} of them masked out"
    if noun == "prototype":
        text += f", {twins} nearly equal to another one of their class"
    rule = (
        " Pictures are the training patches in which a unit is most active, of the first 40 "
        "images of its class that may be seen here."
        if pictured
        else " Patches are images of a site and are not shown."
    )
    return format_html("{}.{}", text, rule)


def _render_class(
    name: str,
    units: Sequence[Unit],
    shown: Mapping[int, Sequence[UnitPatch]],
    photos: Photos,
    noun: str,
) -> Html:
    cards = [_render_card(unit, shown.get(unit.number, ()), photos, noun) for unit in units]
    if len(units) == 1 and shown:
        return join(cards)
    return el(
        "ul", *(el("li", card, class_="unit") for card in cards), class_="grid", aria_label=name
    )


def _render_card(unit: Unit, patches: Sequence[UnitPatch], photos: Photos, noun: str) -> Html:
    pictures = [
        photos.draw_framed(
            ground.row, ground.box, f"{noun} {unit.number}: patch {at + 1}, of {unit.class_name}"
        )
        for at, ground in enumerate(patches)
    ]
    facts = []
    if unit.weight is not None:
        facts.append(f"weight to its class {format_value(unit.weight)}")
    if unit.also is not None:
        facts.append(f"also speaks for {unit.also[0]}, {format_value(unit.also[1])}")
    tags = [el("span", tag, class_="tag") for tag in _list_tags(unit)]
    strip = None
    if pictures:
        strip = el("div", *pictures, class_="strip four" if len(pictures) > 1 else "strip")
    return join(
        [
            strip,
            el("h4", f"{noun} {unit.number}"),
            el("small", "; ".join(facts)) if facts else None,
            el("div", *tags, class_="tags") if tags else None,
        ]
    )


def _list_tags(unit: Unit) -> list[str]:
    masked = [] if unit.alive else ["masked out"]
    return masked + (["same as " + ", ".join(map(str, unit.twins))] if unit.twins else [])


def _make_table(record: RunRecord, units: Sequence[Unit]) -> Table:
    columns = (
        Column("class"),
        Column("unit", number=True),
        Column("weight", format_value, "What one unit of its score adds to the logit", number=True),
        Column("in use"),
        Column("nearly equal to"),
    )
    rows = tuple(
        (
            unit.class_name,
            unit.number,
            unit.weight,
            "yes" if unit.alive else "masked out",
            ", ".join(map(str, unit.twins)) or None,
        )
        for unit in units
    )
    return Table(f"{record.name}-units", "Every unit", columns, rows)


def _make_agreement_blocks(record: RunRecord) -> tuple[Block, ...]:
    """How far sites agree on each class's subspace, and which site is far from the mean.

    The server knows all of it, so it may be shared.
    """
    if not record.run.round or not averages_subspaces(record.run):
        return ()
    agreement = read_agreement(record.run)
    agreed = agreement.consensus.tolist()
    values = [Bar(n, v, format_value(v, 2)) for n, v in zip(agreement.classes, agreed, strict=True)]

    def draw(width: float) -> Drawing:
        return draw_bars(values, "Consensus of the sites by class", width, most=1.0)

    columns = (
        Column("class"),
        Column("consensus", format_value, number=True),
        Column("eigengap", format_value, number=True),
    )
    rows = tuple(zip(agreement.classes, agreed, agreement.eigengap.tolist(), strict=True))
    title = "Consensus of the sites by class"
    table = Table(f"{record.name}-consensus", title, columns, rows)
    caption = format_html(
        "How far the sites agree on each class: 1 where all hold the same subspace. A class "
        "without an eigengap has no agreed one."
    )
    head = el("h3", "Do the sites agree?")
    picture = Figure(f"{record.name}-consensus", caption, draw, table)
    return (head, picture, *_make_distance_blocks(record, agreement))


def _make_distance_blocks(record: RunRecord, agreement: Agreement) -> tuple[Block, ...]:
    if agreement.distance is None or not np.isfinite(agreement.distance).any():
        return ()
    values, sites, classes = agreement.distance, list(agreement.sites), list(agreement.classes)
    most = float(np.nanmax(values)) or 1.0
    cells = [[_make_distance_cell(float(v), most) for v in row] for row in values]

    def draw(width: float) -> Drawing:
        return draw_matrix(sites, classes, cells, "Distance from the agreed subspace", width)

    columns = (Column("site"), Column("class"), Column("distance", format_value, number=True))
    rows = tuple(
        (site, name, float(values[i, j]) if np.isfinite(values[i, j]) else None)
        for i, site in enumerate(sites)
        for j, name in enumerate(classes)
    )
    title = "Distance from the agreed subspace, by site and class"
    table = Table(f"{record.name}-distance", title, columns, rows)
    top = agreement.rank_deviations()[:1]
    furthest = "" if not top else f" Furthest from the others: {top[0].site} in {top[0].label}."
    caption = format_html(
        "How far each site's own subspace of a class was from the agreed one in the last round "
        "(geodesic distance, at most {}).{}",
        format_value(agreement.largest, 2),
        furthest,
    )
    return (Figure(f"{record.name}-distance", caption, draw, table),)


def _make_distance_cell(value: float, most: float) -> Cell:
    return Cell(0.9 * value / most, f"{value:.2f}") if np.isfinite(value) else Cell(None)
