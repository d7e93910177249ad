"""How much a site may count: a bound on what it claims, and the shares that follow."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low


def bound_weights(weights: Mapping[str, float], largest: float | None) -> dict[str, float]:
    """Weights of which none is more than `largest` times the median site's; None: as they are.

    A claim moves the median only if half of the sites make it. Sites without weight do not count
    in it.
    """
    speaking = [weight for weight in weights.values() if weight > 0]
    if largest is None or not speaking:
        return dict(weights)
    most = largest * median_low(speaking)
    return {site: min(weight, most) for site, weight in weights.items()}


def compute_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """The share of each site in a sum; without any weight, none."""
    total = sum(weights.values())
    return {site: weight / total if total > 0 else 0.0 for site, weight in weights.items()}
