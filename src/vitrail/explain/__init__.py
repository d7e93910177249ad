"""Explanations: where a unit looks, evidence that adds up to a logit, and attribution maps."""

from vitrail.explain.lrp import relevance as _relevance  # noqa: F401  (registers the attribution)
