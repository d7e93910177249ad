"""How much each site counts in a sum: the run's choice, bounded, less for those under suspicion."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.aggregate.bounded_weights import bound_weights
from vitrail.engine.plan import Plan
from vitrail.methods.base.method import Roster
from vitrail.secure_aggregation.weight_terms import WeightTerms


def weigh_sites(plan: Plan, roster: Roster, sites: Sequence[str]) -> dict[str, float]:
    """The weights of some sites in a sum over them."""
    weights = bound_weights(_choose(plan, roster, sites), plan.config.aggregate.largest_weight)
    return {site: weight * plan.config.debias.factor(site) for site, weight in weights.items()}


def make_weight_terms(plan: Plan, site: str, examples: int) -> WeightTerms:
    """What a site of so many training images knows of the weights of a secure sum. Whether they
    are all the same, or the images, is seen by trying two numbers of images."""
    probe = {"a": {"examples": 3.0}, "b": {"examples": 7.0}}
    try:
        tried = _choose(plan, probe, list(probe))
    except KeyError:  # they follow from more than images
        tried = {}
    alike = plan.private or tried == {"a": 1.0, "b": 1.0}
    by_images = not alike and tried == {"a": 3.0, "b": 7.0}
    own = 1.0 if alike else float(examples) if by_images else None
    aggregate, debias = plan.config.aggregate, plan.config.debias
    return WeightTerms(site, own, alike, aggregate.largest_weight, debias.factor)


def _choose(plan: Plan, roster: Roster, sites: Sequence[str]) -> dict[str, float]:
    """The weights that the run asks for, before any bound."""
    choice = plan.config.aggregate.weights
    if choice == "uniform":
        return dict.fromkeys(sites, 1.0)
    if choice == "examples":
        return {site: roster[site]["examples"] for site in sites}
    return plan.method.weights(roster, sites)
