"""The cheapest personal model: global logits and how often a site has seen each class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vitrail.errors import ConfigError
from vitrail.runs.site_logits import Floats, Integers, SiteLogits


def shift_to_prior(
    logits: Floats, counts: Integers, total: Integers, temperature: float, smoothing: float
) -> Floats:
    """z / T + log((n_c + a) / (n + a C)) - log of the same over all sites, for logits [N, C].

    `counts` [C] are the site's training labels by class, `total` those of all sites. Bayes' rule
    for a model that was trained under one prior and is used under another.
    """
    if temperature <= 0 or smoothing <= 0:
        raise ConfigError("temperature and smoothing must be positive", where="prior shift")
    classes = logits.shape[1]

    def log_frequency(n: Integers) -> Floats:
        frequency: Floats = np.log((n + smoothing) / (n.sum() + smoothing * classes))
        return frequency

    return (logits / temperature + log_frequency(counts) - log_frequency(total)).astype(np.float32)


def shift_sites(answers: SiteLogits, temperature: float, smoothing: float) -> SiteLogits:
    """The answers of all sites, each under its own class frequencies."""
    total = answers.counts.sum(axis=0)
    shifted = np.array(answers.logits, copy=True)
    for number in range(len(answers.names)):
        rows = answers.site == number
        shifted[rows] = shift_to_prior(
            answers.logits[rows], answers.counts[number], total, temperature, smoothing
        )
    return replace(answers, logits=shifted)


def answer_by_prior(answers: SiteLogits) -> SiteLogits:
    """What knows nothing but how often a site has seen each class: its most frequent one."""
    return replace(answers, logits=answers.counts[answers.site].astype(np.float32))
