"""Metric privacy in numbers: what epsilon means at a distance, and which distances there are.

For Gaussian noise the loss between two images is not epsilon times their distance; what holds is
the analytic Gaussian mechanism at that distance as its sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.release.accounting import gaussian

POINTS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOST = 1000  # images whose pairs are looked at


def epsilon_at(distance: float, sigma: float, delta: float, norm: str) -> float:
    """The least epsilon for two images so far apart: by the analytic Gaussian mechanism for l2;
    for l1 distance / b with Laplace noise of scale b = sigma / sqrt(2), and delta 0."""
    if sigma == 0:
        return math.inf if distance else 0.0
    if norm == "l1":
        return distance * math.sqrt(2) / sigma
    return gaussian.compute_epsilon(sigma, delta, distance)


def compute_epsilon_curve(
    sigma: float, delta: float, norm: str
) -> tuple[tuple[float, float | None], ...]:
    """epsilon by distance, at a few distances; None where there is no noise."""
    return tuple((d, _finite_or_none(epsilon_at(d, sigma, delta, norm))) for d in POINTS)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Distances:
    """How far apart images of one class are in the site's data: medians, or None for no pair."""

    nearest: float | None
    pair: float | None

    @staticmethod
    def of(images: Tensor, labels: Tensor, norm: str, where: Tensor | None = None) -> Distances:
        """From images [N, H, W, C]; `where` [N, D] are other coordinates in which to look for
        each image's nearest neighbor, whose distance is still that of the pixels."""
        nearest, pairs = [], []
        # spread over all rows, because these may lie there class by class
        rows = torch.linspace(0, len(labels) - 1, min(_MOST, len(labels))).round().long()
        images, labels = images[rows], labels[rows]
        where = None if where is None else where[rows]
        for label in torch.unique(labels):
            members = labels == label
            flat = images[members].flatten(1)
            if len(flat) < 2:
                continue
            apart = torch.cdist(flat, flat, p=1.0 if norm == "l1" else 2.0)
            looked = apart if where is None else torch.cdist(where[members], where[members])
            looked = looked.clone().fill_diagonal_(torch.inf)
            nearest.append(apart.gather(1, looked.argmin(1, keepdim=True))[:, 0])
            i, j = torch.triu_indices(len(flat), len(flat), 1)
            pairs.append(apart[i, j])
        if not pairs:
            return Distances(None, None)
        return Distances(float(torch.cat(nearest).median()), float(torch.cat(pairs).median()))

    def epsilons(self, sigma: float, delta: float, norm: str) -> dict[str, list[float | None]]:
        """[distance, epsilon] at the median nearest neighbor and at the median pair."""
        named = {"nearest neighbor": self.nearest, "pair": self.pair}
        return {
            name: [d, None if d is None else _finite_or_none(epsilon_at(d, sigma, delta, norm))]
            for name, d in named.items()
        }
