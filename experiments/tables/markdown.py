"""The cells of a results table, and the table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def to_markdown(head: list[str], rows: list[list[str]]) -> str:
    """Cells as a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def format_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A figure with its interval."""
    if value is None:
        return "-"
    limits = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{value:.3f}{limits}"


def format_mean(values: Sequence[float], form: str = ".3g") -> str:
    """The mean of what could be measured, with its standard deviation where there is one."""
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return "-"
    spread = f" ± {np.std(known, ddof=1):.2g}" if len(known) > 1 else ""
    return f"{np.mean(known):{form}}{spread}"
