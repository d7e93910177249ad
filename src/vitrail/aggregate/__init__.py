"""Aggregation: a guard first, then sums in float64 in one fixed order."""

from vitrail.aggregate import centers as _centers  # noqa: F401  (registers its rules)
from vitrail.aggregate import matched as _matched  # noqa: F401  (registers its rules)
from vitrail.aggregate import mean as _mean  # noqa: F401  (registers its rules)
from vitrail.aggregate import robust as _robust  # noqa: F401  (registers its rules)
from vitrail.aggregate import subspace as _subspace  # noqa: F401  (registers its rules)
from vitrail.aggregate.guard import Guard
from vitrail.aggregate.rule import RULES, Group, Rule, SeesAll
from vitrail.aggregate.sums import Aggregator, Sums

__all__ = ["RULES", "Aggregator", "Group", "Guard", "Rule", "SeesAll", "Sums"]
