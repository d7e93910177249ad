"""Explanations: where a unit looks, evidence that adds up to a logit, and attribution maps."""

from vitrail.explain import lrp as _lrp  # noqa: F401  (registers its attribution)
