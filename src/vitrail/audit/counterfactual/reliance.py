"""How far the suspected places move a site's own model, beyond chance and beyond the shared one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitrail.audit.counterfactual.effects import Probe

_FLOOR = 0.05  # nats: random regions that do nothing at all must not make everything significant


def compute_reliance(probes: Sequence[Probe]) -> list[float]:
    """One number for each class of a site.

    Two numbers must be large at once, so the smaller one counts: how much more the region moves
    the site's own model than random regions of its size do, and how much more it moves that
    model than the shared one. A part that all sites know moves both models; a shortcut that
    only this site has moves its own. Both are in standard deviations of random regions, pooled
    over the site's classes.
    """
    local = _compute_mean_sd([e.swapped["local"] for p in probes for e in p.random])
    apart = _compute_mean_sd([_compute_gap(e.swapped) for p in probes for e in p.random])
    return [
        min(
            (probe.effect.swapped["local"] - local[0]) / local[1],
            (_compute_gap(probe.effect.swapped) - apart[0]) / apart[1],
        )
        for probe in probes
    ]


def _compute_gap(swapped: Mapping[str, float]) -> float:
    return swapped["local"] - swapped["shared"]


def _compute_mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, which is never less than a floor."""
    if len(values) < 2:
        return 0.0, _FLOOR
    return float(np.mean(values)), max(_FLOOR, float(np.std(values, ddof=1)))
