"""The section "what the model looks for": prototypes or subspaces by class, and who agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitrail.audit.consensus import Agreement, agreement, averages_subspaces
from vitrail.explain.prototypes import Unit, units
from vitrail.models.pieces import part_head
from vitrail.report.document.account import Account
from vitrail.report.document.block import Block, Choice, Figure, Folded, Missing
from vitrail.report.document.chart_matrix import Cell, matrix
from vitrail.report.document.chart_rows import Bar, bars
from vitrail.report.document.grounds import Ground, grounds
from vitrail.report.document.markup import Html, el, join, say
from vitrail.report.document.photos import Photos
from vitrail.report.document.scale import count, figure
from vitrail.report.document.scene import Scene
from vitrail.report.document.table import Column, Table
from vitrail.report.document.window import Window

_PICTURED = 24  # classes beyond this many are told in numbers only
_PATCHES = 4  # pictures of a class that has one unit


def parts(account: Account, seen: Window | Missing, photos: Photos) -> tuple[Block, ...]:
    """Units by class with the patches that the reader may see, agreement, duplicates."""
    agreed = _agreement(account)
    if isinstance(seen, Missing):
        return (seen, *agreed)
    if not seen.explainer.parts:
        return (
            Missing(
                say(
                    "{} is a black box: its logits are not made of parts. Methods whose models "
                    "have parts: {}.",
                    account.run.config.method.name,
                    "myth-gm, myth-pm, indisco, tesnet, tesnet-stiefel, fedgrasp",
                )
            ),
        )
    head = part_head(seen.explainer.model.network)
    found = units(head, account.run.classes)
    each = max(1, _PATCHES // max(1, len(found) // max(1, len(account.run.classes))))
    small = len(account.run.classes) <= _PICTURED
    shown = grounds(seen, each) if seen.shown and small and len(seen.train) else {}
    noun = "subspace" if hasattr(head, "frames") else "prototype"
    views: tuple[tuple[str, tuple[Block, ...]], ...] = tuple(
        (name, (_class(name, [u for u in found if u.owner == at], shown, photos, noun),))
        for at, name in enumerate(account.run.classes)
    )
    summary = el("p", _summary(found, noun, seen, bool(shown)))
    chosen = Choice(f"{account.name}-class", "Class", views)
    return (summary, chosen, Folded("Every unit", _table(account, found)), *agreed)


def _summary(found: Sequence[Unit], noun: str, seen: Window, pictured: bool) -> Html:
    alive = [unit for unit in found if unit.alive]
    twins = sum(bool(unit.twins) for unit in alive)
    told = f"{count(len(found), noun)} of the {seen.explainer.title}"
    if len(alive) < len(found):
        told += f", {len(found) - len(alive)} of them masked out"
    if noun == "prototype":
        told += f", {twins} nearly equal to another one of their class"
    rule = (
        " Pictures are the training patches in which a unit is most active, of the first 40 "
        "images of its class that may be seen here."
        if pictured
        else " Patches are images of a site and are not shown."
    )
    return say("{}.{}", told, rule)


def _class(
    name: str,
    mine: Sequence[Unit],
    shown: Mapping[int, Sequence[Ground]],
    photos: Photos,
    noun: str,
) -> Html:
    cards = [_card(unit, shown.get(unit.number, ()), photos, noun) for unit in mine]
    if len(mine) == 1 and shown:
        return join(cards)
    return el(
        "ul", *(el("li", card, class_="unit") for card in cards), class_="grid", aria_label=name
    )


def _card(unit: Unit, patches: Sequence[Ground], photos: Photos, noun: str) -> Html:
    pictures = [
        photos.framed(
            ground.row, ground.box, f"{noun} {unit.number}: patch {at + 1}, of {unit.class_name}"
        )
        for at, ground in enumerate(patches)
    ]
    facts = []
    if unit.weight is not None:
        facts.append(f"weight to its class {figure(unit.weight)}")
    if unit.also is not None:
        facts.append(f"also speaks for {unit.also[0]}, {figure(unit.also[1])}")
    tags = [el("span", tag, class_="tag") for tag in _tags(unit)]
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


def _tags(unit: Unit) -> list[str]:
    masked = [] if unit.alive else ["masked out"]
    return masked + (["same as " + ", ".join(map(str, unit.twins))] if unit.twins else [])


def _table(account: Account, found: Sequence[Unit]) -> Table:
    columns = (
        Column("class"),
        Column("unit", number=True),
        Column("weight", figure, "What one unit of its score adds to the logit", number=True),
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
        for unit in found
    )
    return Table(f"{account.name}-units", "Every unit", columns, rows)


def _agreement(account: Account) -> tuple[Block, ...]:
    """How far sites agree on each class's subspace, and which site is far from the mean.

    The server knows all of it, so it may be shared.
    """
    if not account.run.round or not averages_subspaces(account.run):
        return ()
    found = agreement(account.run)
    agreed = found.consensus.tolist()
    values = [Bar(n, v, figure(v, 2)) for n, v in zip(found.classes, agreed, strict=True)]

    def draw(width: float) -> Scene:
        return bars(values, "Consensus of the sites by class", width, most=1.0)

    columns = (
        Column("class"),
        Column("consensus", figure, number=True),
        Column("eigengap", figure, number=True),
    )
    rows = tuple(zip(found.classes, agreed, found.eigengap.tolist(), strict=True))
    title = "Consensus of the sites by class"
    table = Table(f"{account.name}-consensus", title, columns, rows)
    told = say(
        "How far the sites agree on each class: 1 where all hold the same subspace. A class "
        "without an eigengap has no agreed one."
    )
    head = Html("<h3>Do the sites agree?</h3>")
    picture = Figure(f"{account.name}-consensus", told, draw, table)
    return (head, picture, *_distances(account, found))


def _distances(account: Account, found: Agreement) -> tuple[Block, ...]:
    if found.distance is None or not np.isfinite(found.distance).any():
        return ()
    values, sites, classes = found.distance, list(found.sites), list(found.classes)
    most = float(np.nanmax(values)) or 1.0
    cells = [[_far(float(v), most) for v in row] for row in values]

    def draw(width: float) -> Scene:
        return matrix(sites, classes, cells, "Distance from the agreed subspace", width)

    columns = (Column("site"), Column("class"), Column("distance", figure, number=True))
    rows = tuple(
        (site, name, float(values[i, j]) if np.isfinite(values[i, j]) else None)
        for i, site in enumerate(sites)
        for j, name in enumerate(classes)
    )
    title = "Distance from the agreed subspace, by site and class"
    table = Table(f"{account.name}-distance", title, columns, rows)
    top = found.apart()[:1]
    apart = "" if not top else f" Furthest from the others: {top[0].site} in {top[0].label}."
    told = say(
        "How far each site's own subspace of a class was from the agreed one in the last round "
        "(geodesic distance, at most {}).{}",
        figure(found.largest, 2),
        apart,
    )
    return (Figure(f"{account.name}-distance", told, draw, table),)


def _far(value: float, most: float) -> Cell:
    return Cell(0.9 * value / most, f"{value:.2f}") if np.isfinite(value) else Cell(None)
