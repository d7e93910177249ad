"""Randomized response: a label leaves as it is, or as another one drawn at random (Warner 1965)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitrail.rng import Key


def compute_truth_probability(classes: int, epsilon: float) -> float:
    """The chance that a label stays: e^eps / (e^eps + classes - 1)."""
    return 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon))


def randomize_labels(labels: Tensor, classes: int, epsilon: float, key: Key) -> Tensor:
    """Labels of which each is `epsilon`-differentially private: no answer is more than e^eps times
    as likely under one label as under another."""
    if classes < 2:
        return labels.clone()
    source = key.stream()
    stays = source.uniform([len(labels)])
    others = 1 + source.below(classes - 1, len(labels))
    return torch.where(
        stays < compute_truth_probability(classes, epsilon), labels, (labels + others) % classes
    )
