"""How a class looks at the other sites, from the means that they told: what to harmonize toward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.audit.detection.feature_layout import Unit
from vitrail.data.look import CELLS, QUANTILES, RINGS

# The first so many features of these families, in this order, are a look (`data/look.py`).
_PARTS = {"tone curve": len(QUANTILES), "spectrum": RINGS, "shading": CELLS, "colors": 4}


def find_look(
    summaries: Mapping[str, ClassSummary], units: Sequence[Unit], site: str, label: int
) -> tuple[float, ...]:
    """The median over the other sites that told of the class; empty where there is none."""
    others = [t.means[label] for n, t in summaries.items() if n != site and t.counts[label] > 0]
    by_family = {unit.family: unit for unit in units if unit.kind == "image-wide"}
    parts = [by_family[name].columns[:count] for name, count in _PARTS.items() if name in by_family]
    if not others or not parts:
        return ()
    middle = np.median(np.stack(others), 0)[np.concatenate(parts)]
    return tuple(round(float(value), 5) for value in middle)
