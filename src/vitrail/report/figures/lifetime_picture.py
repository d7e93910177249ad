"""The picture of what a site's images have spent over all runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vitrail.report.charts.chart_budget import BudgetStep, draw_budget
from vitrail.report.charts.drawing import Drawing


def draw_history(history: Mapping[str, Any], width: float, this: str = "") -> Drawing:
    """Draw what `describe_history` told; the run that a report is about is called so."""
    steps, before = [], 0.0
    for run in history["runs"]:
        after, alone = (math.inf if run[n] is None else run[n] for n in ("total", "alone"))
        name = "this run" if this and run["run"] == this else str(run["run"])
        steps.append(BudgetStep(name, before, after, alone, bool(run["over"])))
        before = after
    return draw_budget(steps, history["limit"], width)
