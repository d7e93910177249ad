"""Tables that a grid may end in, other than a comparison of methods.

A grid names one as `table` in its `[sweep]` section; a table registers beside its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from vitrail.config.load import Loaded
from vitrail.engine.run import OnRound
from vitrail.registry import Registry

OnCell = Callable[[int, int, str], OnRound | None]


class Table(Protocol):
    """Plays what is missing of a grid in a folder and says what came of it, as Markdown."""

    def __call__(self, grid: Loaded, folder: Path, on_cell: OnCell) -> str:
        """The text; figures are written beside the runs."""
        ...


TABLES: Registry[Table] = Registry("table", "sweep.table")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Cells as a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def ranged(value: float | None, low: float | None, high: float | None) -> str:
    """A figure with its interval."""
    if value is None:
        return "-"
    limits = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{value:.3f}{limits}"


def averaged(values: Sequence[float], form: str = ".3g") -> str:
    """The mean of what could be measured, with its standard deviation where there is one."""
    told = [value for value in values if np.isfinite(value)]
    if not told:
        return "-"
    spread = f" ± {np.std(told, ddof=1):.2g}" if len(told) > 1 else ""
    return f"{np.mean(told):{form}}{spread}"
