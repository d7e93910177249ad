"""Metrics of a classifier from its logits, bootstrap intervals, tests between methods."""
