"""How much each site counts in a sum: the run's choice, bounded, less for those under suspicion."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.aggregate.bounded_weights import bound_weights
from vitrail.engine.plan import Plan
from vitrail.methods.base.method import Roster


def weigh_sites(plan: Plan, roster: Roster, sites: Sequence[str]) -> dict[str, float]:
    """The weights of some sites in a sum over them."""
    choice = plan.config.aggregate.weights
    if choice == "uniform":
        weights = dict.fromkeys(sites, 1.0)
    elif choice == "examples":
        weights = {site: roster[site]["examples"] for site in sites}
    else:
        weights = plan.method.weights(roster, sites)
    weights = bound_weights(weights, plan.config.aggregate.largest_weight)
    return {site: weight * plan.config.debias.factor(site) for site, weight in weights.items()}
