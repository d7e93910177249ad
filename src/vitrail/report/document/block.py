"""What sections are made of: figures with the table behind them, notes, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vitrail.report.document.markup import Html, el, join
from vitrail.report.document.scene import Scene
from vitrail.report.document.table import Table

WIDE, NARROW = 860.0, 330.0


@dataclass(frozen=True)
class Figure:
    """A drawing for any width, in words below it, with the table that it was made from."""

    name: str  # of its file
    caption: Html
    draw: Callable[[float], Scene]
    table: Table | None = None
    pick: tuple[str, ...] = ()  # series that can be picked out

    def html(self) -> Html:
        """The drawing for wide and for narrow screens, and the numbers behind it."""
        wide = self.draw(WIDE)
        behind = None if self.table is None else Folded("The numbers", self.table).html()
        enlarge = el(
            "button",
            "Enlarge",
            type="button",
            class_="enlarge",
            aria_label=f"Enlarge: {wide.title}",
        )
        drawn = join([wide.inline("desk"), self.draw(NARROW).inline("phone")])
        caption = el("figcaption", self.caption, enlarge)
        zoomer = None if wide.plot is None else _zoomer(wide.title)
        above = join([self._picker(), zoomer])
        return el("figure", above, el("div", drawn, class_="drawn"), caption, behind)

    def _picker(self) -> Html | None:
        if len(self.pick) < 2:
            return None
        options = [el("option", name, value=name) for name in self.pick]
        select = el("select", el("option", "all", value=""), *options, data_pick=True)
        return el("label", "Highlight ", select, class_="choose")


def _zoomer(title: str) -> Html:
    """Buttons that the script brings to life; without it they stay away."""
    buttons = [
        el("button", sign, type="button", aria_label=f"{words}: {title}", title=words)
        for sign, words in (("+", "Zoom in"), ("\N{MINUS SIGN}", "Zoom out"), ("All", "Show all"))
    ]
    return el("div", *buttons, el("output"), class_="zoomer", role="group", hidden=True,
              aria_label=f"Zoom: {title}")  # fmt: skip


@dataclass(frozen=True)
class Folded:
    """A table that opens when it is asked for."""

    title: str
    table: Table

    def html(self) -> Html:
        """Closed; on paper it is left out, because it is written as CSV."""
        return el("details", el("summary", self.title), self.table.html())


@dataclass(frozen=True)
class Missing:
    """What is not there, and how to make it."""

    sentence: Html

    def html(self) -> Html:
        """A quiet note."""
        return el("p", self.sentence, class_="missing")


@dataclass(frozen=True)
class Choice:
    """Several views of which one is looked at; without scripts and on paper all are shown.

    `label` says what is chosen, `views` are names and what belongs to each.
    """

    name: str
    label: str
    views: tuple[tuple[str, tuple[Block, ...]], ...]

    def html(self) -> Html:
        """A selector above the views."""
        if len(self.views) == 1:
            return join(render(block) for block in self.views[0][1])
        options = [el("option", name, value=at) for at, (name, _) in enumerate(self.views)]
        select = el("select", *options, data_choose=self.name, id=f"choose-{self.name}")
        label = el("label", f"{self.label} ", select, class_="choose", for_=f"choose-{self.name}")
        views = [
            el(
                "div",
                el("p", name, class_="view-name"),
                *map(render, blocks),
                data_group=self.name,
                data_key=at,
            )
            for at, (name, blocks) in enumerate(self.views)
        ]
        return join([label, *views])


Block: TypeAlias = Html | Figure | Table | Folded | Missing | Choice


def render(block: Block) -> Html:
    """Any block as markup."""
    return block if isinstance(block, Html) else block.html()


@dataclass(frozen=True)
class Section:
    """A part of the report: its anchor, its title, what it is about, and its blocks."""

    anchor: str
    title: str
    lead: Html
    blocks: tuple[Block, ...] = field(default=())
    images: bool = False  # whether it shows images of a site

    def html(self) -> Html:
        """The section; one that shows images of a site says so at its top."""
        marked = None
        if self.images:
            marked = el("p", "Shows images of a site: not for sharing.", class_="private")
        return el(
            "section",
            el("h2", self.title),
            marked,
            el("p", self.lead, class_="lead"),
            *map(render, self.blocks),
            id=self.anchor,
            aria_label=self.title,
        )


def leaves(blocks: Sequence[Block]) -> Iterator[Figure | Table]:
    """Every figure and table, those inside choices too, in order."""
    for block in blocks:
        if isinstance(block, Choice):
            for _, inside in block.views:
                yield from leaves(inside)
        elif isinstance(block, Figure):
            yield block
            if block.table is not None:
                yield block.table
        elif isinstance(block, Folded):
            yield block.table
        elif isinstance(block, Table):
            yield block
