"""Aggregation: a guard first, then sums in float64 in one fixed order."""

import sys

from vitrail.aggregate.guard import Guard
from vitrail.aggregate.rule import RULES, Group, PerSiteRule, Rule
from vitrail.aggregate.sums import Aggregator, Sums
from vitrail.registry import import_modules

import_modules(sys.modules[__name__])

__all__ = ["RULES", "Aggregator", "Group", "Guard", "PerSiteRule", "Rule", "Sums"]
