"""How many images of each class a site has, told once before the first round.

That discloses the label histogram; behind a formal mechanism such methods are refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.methods.base.method import Roster

_PREFIX = "label-"


def make_label_facts(labels: npt.NDArray[np.int64], classes: int) -> dict[str, float]:
    """The histogram as facts, `label-0`, `label-1` and so on."""
    counts = np.bincount(labels, minlength=classes)
    return {f"{_PREFIX}{label}": float(count) for label, count in enumerate(counts)}


def read_label_counts(roster: Roster, sites: Iterable[str], classes: int) -> Tensor:
    """The histograms of some sites, [sites, classes] in float64."""
    rows = [[roster[site][f"{_PREFIX}{label}"] for label in range(classes)] for site in sites]
    return torch.tensor(rows, dtype=torch.float64).view(-1, classes)


def compute_label_shares(counts: Tensor) -> Tensor:
    """How often each class is to be drawn, [classes]; all alike where there is nothing to count."""
    total = counts.sum(0)
    if not total.sum() > 0:
        return torch.full_like(total, 1 / len(total))
    return total / total.sum()
