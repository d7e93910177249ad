"""What sections are made of: figures with the table behind them, notes, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vitrail.report.charts.drawing import Drawing
from vitrail.report.html import Html, el, join
from vitrail.report.html_table import Table

WIDE, NARROW = 860.0, 330.0


@dataclass(frozen=True)
class Figure:
    """A drawing for any width, in words below it, with the table that it was made from."""

    name: str  # of its file
    caption: Html
    draw: Callable[[float], Drawing]
    table: Table | None = None
    pick: tuple[str, ...] = ()  # series that can be picked out

    def to_html(self) -> Html:
        """The drawing for wide and for narrow screens, and the numbers behind it."""
        wide = self.draw(WIDE)
        folded_table = (
            None if self.table is None else FoldedTable("The numbers", self.table).to_html()
        )
        enlarge = el(
            "button",
            "Enlarge",
            type="button",
            class_="enlarge",
            aria_label=f"Enlarge: {wide.title}",
        )
        drawings = join([wide.to_inline_svg("desk"), self.draw(NARROW).to_inline_svg("phone")])
        caption = el("figcaption", self.caption, enlarge)
        zoom_buttons = None if wide.plot is None else _render_zoom_buttons(wide.title)
        controls = join([self._render_picker(), zoom_buttons])
        return el("figure", controls, el("div", drawings, class_="drawn"), caption, folded_table)

    def _render_picker(self) -> Html | None:
        if len(self.pick) < 2:
            return None
        options = [el("option", name, value=name) for name in self.pick]
        select = el("select", el("option", "all", value=""), *options, data_pick=True)
        return el("label", "Highlight ", select, class_="choose")


def _render_zoom_buttons(title: str) -> Html:
    """Buttons that the script brings to life; without it they stay away."""
    buttons = [
        el("button", sign, type="button", aria_label=f"{action}: {title}", title=action)
        for sign, action in (("+", "Zoom in"), ("\N{MINUS SIGN}", "Zoom out"), ("All", "Show all"))
    ]
    return el("div", *buttons, el("output"), class_="zoomer", role="group", hidden=True,
              aria_label=f"Zoom: {title}")  # fmt: skip


@dataclass(frozen=True)
class FoldedTable:
    """A table that opens when it is asked for."""

    title: str
    table: Table

    def to_html(self) -> Html:
        """Closed; on paper it is left out, because it is written as CSV."""
        return el("details", el("summary", self.title), self.table.to_html())


@dataclass(frozen=True)
class MissingNote:
    """What is not there, and how to make it."""

    sentence: Html

    def to_html(self) -> Html:
        """A quiet note."""
        return el("p", self.sentence, class_="missing")


@dataclass(frozen=True)
class ViewChoice:
    """Several views of which one is looked at; without scripts and on paper all are shown.

    `label` says what is chosen, `views` are names and what belongs to each.
    """

    name: str
    label: str
    views: tuple[tuple[str, tuple[Block, ...]], ...]

    def to_html(self) -> Html:
        """A selector above the views."""
        if len(self.views) == 1:
            return join(render_block(block) for block in self.views[0][1])
        options = [el("option", name, value=at) for at, (name, _) in enumerate(self.views)]
        select = el("select", *options, data_choose=self.name, id=f"choose-{self.name}")
        label = el("label", f"{self.label} ", select, class_="choose", for_=f"choose-{self.name}")
        views = [
            el(
                "div",
                el("p", name, class_="view-name"),
                *map(render_block, blocks),
                data_group=self.name,
                data_key=at,
            )
            for at, (name, blocks) in enumerate(self.views)
        ]
        return join([label, *views])


Block: TypeAlias = Html | Figure | Table | FoldedTable | MissingNote | ViewChoice


def render_block(block: Block) -> Html:
    """Any block as markup."""
    return block if isinstance(block, Html) else block.to_html()


@dataclass(frozen=True)
class Section:
    """A part of the report: its anchor, its title, what it is about, and its blocks."""

    anchor: str
    title: str
    lead: Html
    blocks: tuple[Block, ...] = field(default=())
    images: bool = False  # whether it shows images of a site

    def to_html(self) -> Html:
        """The section; one that shows images of a site says so at its top."""
        warning = None
        if self.images:
            warning = el("p", "Shows images of a site: not for sharing.", class_="private")
        return el(
            "section",
            el("h2", self.title),
            warning,
            el("p", self.lead, class_="lead"),
            *map(render_block, self.blocks),
            id=self.anchor,
            aria_label=self.title,
        )


def iterate_leaves(blocks: Sequence[Block]) -> Iterator[Figure | Table]:
    """Every figure and table, those inside choices too, in order."""
    for block in blocks:
        if isinstance(block, ViewChoice):
            for _, view_blocks in block.views:
                yield from iterate_leaves(view_blocks)
        elif isinstance(block, Figure):
            yield block
            if block.table is not None:
                yield block.table
        elif isinstance(block, FoldedTable):
            yield block.table
        elif isinstance(block, Table):
            yield block
