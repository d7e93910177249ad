"""Tables that a grid may end in, other than a comparison of methods.

A grid names one as `table` in its `[sweep]` section; a table registers beside its definition.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from vitrail.config.load import Loaded
from vitrail.engine.run import OnRound
from vitrail.registry import Registry

OnCell = Callable[[int, int, str], OnRound | None]


class TableBuilder(Protocol):
    """Plays what is missing of a grid in a folder and says what came of it, as Markdown."""

    def __call__(self, grid: Loaded, folder: Path, on_cell: OnCell) -> str:
        """The text; figures are written beside the runs."""
        ...


TABLES: Registry[TableBuilder] = Registry("table", "sweep.table")
