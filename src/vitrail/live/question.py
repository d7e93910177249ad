"""A question as an address has it: every state of the page Ask can be linked to and reloaded.

`image=test-12` or `image=up-DIGEST`, `cover=x0,y0,x1,y1;...`, `how=blur`, `paste=IMAGE`,
`without=3;4.1` (a unit; a place as row.column), `pull=0.5`, `model=local`, `class=NAME`, `top=5`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from vitrail.errors import ConfigError
from vitrail.explain.painting import PAINT_MODES, PaintMode
from vitrail.explain.what_if import Place

_MOST = 64  # boxes and switches of one question
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class LinkedQuestion:
    """What an address asks."""

    image: str = ""
    cover: tuple[Box, ...] = ()
    how: PaintMode = "blur"
    paste: str = ""
    without: tuple[int | Place, ...] = ()
    pull: float = 1.0
    model: str = ""
    classes: tuple[str, ...] = ()
    top: int = 5
    other: str = field(default="")  # an image to compare with

    @staticmethod
    def parse(query: QueryParams) -> LinkedQuestion:
        """Read an address; what makes no sense is one sentence."""
        try:
            cover = tuple(_parse_box(text) for text in _split(query.get("cover", "")))
            without = tuple(_parse_switch(text) for text in _split(query.get("without", "")))
            pull, top = float(query.get("pull", "1")), int(query.get("top", "5"))
        except ValueError as err:
            raise ConfigError(f"this address cannot be read ({err})") from None
        how = query.get("how", "blur")
        if how not in PAINT_MODES or not math.isfinite(pull) or not 1 <= top <= 50:
            raise ConfigError("this address cannot be read (how, pull or top)")
        return LinkedQuestion(
            query.get("image", ""),
            cover,
            how,
            query.get("paste", ""),
            without,
            pull,
            query.get("model", ""),
            tuple(query.getlist("class"))[:8],
            top,
            query.get("other", ""),
        )

    def to_query(self) -> str:
        """The address of this question."""
        pairs: list[tuple[str, object]] = [("image", self.image)]
        if self.cover:
            pairs.append(("cover", ";".join(",".join(f"{v:g}" for v in box) for box in self.cover)))
            pairs.append(("how", self.how))
        if self.paste:
            pairs.append(("paste", self.paste))
        if self.without:
            pairs.append(("without", ";".join(write_switch(item) for item in self.without)))
        if self.pull != 1:
            pairs.append(("pull", f"{self.pull:g}"))
        if self.model:
            pairs.append(("model", self.model))
        pairs += [("class", name) for name in self.classes]
        return urlencode(pairs)


def write_switch(item: int | Place) -> str:
    """A unit as its number, a place as row.column."""
    return f"{item[0]}.{item[1]}" if isinstance(item, tuple) else str(item)


def _split(text: str) -> list[str]:
    parts = [part for part in text.split(";") if part]
    if len(parts) > _MOST:
        raise ValueError(f"more than {_MOST} regions or switches")
    return parts


def _parse_box(text: str) -> Box:
    values = [float(value) for value in text.split(",")]
    if len(values) != 4 or not all(math.isfinite(value) for value in values):
        raise ValueError(f"{text!r} is no box")
    return values[0], values[1], values[2], values[3]


def _parse_switch(text: str) -> int | Place:
    row, dot, column = text.partition(".")
    return (int(row), int(column)) if dot else int(row)
