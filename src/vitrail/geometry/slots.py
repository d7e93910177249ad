"""Slots that mean the same: which vector of a class belongs to which of a reference."""

from __future__ import annotations

import torch
from torch import Tensor


def match_slots(vectors: Tensor, reference: Tensor, classes: int) -> Tensor:
    """For each slot of the reference [m, D], the own slot of the same class that belongs there:
    the assignment of least total squared distance (Kuhn 1955)."""
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    order = torch.arange(len(vectors))
    per_class = len(vectors) // classes
    for start in range(0, len(vectors), per_class):
        part = slice(start, start + per_class)
        cost = torch.cdist(reference[part].double(), vectors[part].double()).square()
        _, columns = linear_sum_assignment(cost.numpy())
        order[part] = start + torch.from_numpy(columns)
    return order
