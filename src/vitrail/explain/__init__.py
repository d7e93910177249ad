"""Explanations: where a unit looks, evidence that adds up to a logit, and attribution maps."""
