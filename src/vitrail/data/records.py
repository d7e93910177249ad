"""What a source found before any pixel is decoded: references, raw labels, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vitrail.data.decoding.decode import PICTURES, Decoder
from vitrail.data.image_set import Array

Kind = Literal["broken", "missing", "duplicate", "conflict", "suspicious", "label"]
RawLabel = str | int | tuple[str, ...] | None
Box = tuple[float, float, float, float]
Point = tuple[float, float] | None

STOPPING: frozenset[Kind] = frozenset({"broken", "missing", "label"})


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one image, or with the set as a whole."""

    path: str
    kind: Kind
    sentence: str

    def line(self) -> str:
        """The problem as one line of text."""
        return " ".join(f"{self.kind}: {self.path}: {self.sentence}".split())


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """An encoded image inside a Parquet file, read only when its turn comes."""

    file: Path
    row: int
    column: str


Reference = Path | bytes | Array | ParquetImage


@dataclass(frozen=True, slots=True)
class Record:
    """One image that was found: where its pixels are and what is said about it.

    `box` and `parts` are in pixels of the original, upright image. `split` is the word the
    data used; `None` and empty labels mean that nothing was said.
    """

    name: str
    image: Reference
    label: RawLabel
    site: str | None = None
    patient: str | None = None
    split: str | None = None
    box: Box | None = None
    parts: tuple[Point, ...] | None = None


@dataclass(frozen=True)
class Records:
    """All images of a source, in the order that everything after it keeps.

    `classes` are the names a layout knows, in its own order. `files` are the containers whose
    change makes a cached copy stale. `columns` hold other facts, aligned with `rows`.
    """

    rows: Sequence[Record]
    classes: tuple[str, ...] | None = None
    problems: tuple[Problem, ...] = ()
    files: tuple[Path, ...] = ()
    columns: dict[str, Sequence[object]] = field(default_factory=dict)
    decoder: Decoder = PICTURES

    def __len__(self) -> int:
        return len(self.rows)
