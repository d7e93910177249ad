"""Rules that look at whole updates: the geometric median, and clipping around a center."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Metrics, PerSiteRule, Tensors

_SMOOTHING, _TOLERANCE, _MOST_STEPS = 1e-6, 1e-10, 1000


def find_geometric_median(stack: Tensor, weights: Tensor) -> tuple[Tensor, int]:
    """Shares c with sum 1 such that c @ stack has the least weighted sum of distances to the rows,
    and how many steps that took.

    Smoothed Weiszfeld (Pillutla et al. 2022, arXiv:1912.13445, algorithm 2). All points stay in
    the affine hull of the rows, so that one Gram matrix gives every distance.
    """
    share = weights / weights.sum()
    centered = stack - share @ stack
    gram = centered @ centered.T
    least = max(_SMOOTHING * float(gram.diagonal().mean().sqrt()), 1e-100)  # all may be equal
    for step in range(_MOST_STEPS):
        pulled = gram @ share
        square = gram.diagonal() - 2 * pulled + share @ pulled
        pull = weights / square.clamp(min=least**2).sqrt()
        moved = pull / pull.sum()
        if float((moved - share).abs().max()) <= _TOLERANCE:
            return moved, step + 1
        share = moved
    return share, _MOST_STEPS


@RULES.register("geometric-median")
class GeometricMedian(PerSiteRule):
    """The point with the least weighted sum of distances to the updates (RFA, Pillutla et al.
    2022, arXiv:1912.13445). Half of the weight must be hostile to move it at will."""

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The median; how many steps it took, and the largest share of one site in it."""
        del sent
        share, steps = find_geometric_median(stack, weights)
        return self.group.unpack(share @ stack), {
            "median_steps": float(steps),
            "largest_share": float(share.max()),
        }


@RULES.register("centered-clipping")
class CenteredClipping(PerSiteRule):
    """The mean of changes that are cut around a moving center (Karimireddy et al. 2021,
    arXiv:2012.10333, eq. 8): v <- v + sum_k p_k (x_k - v) min(1, radius / |x_k - v|).

    It starts at what was sent and goes `aggregate.clip_steps` times. The radius is
    `aggregate.radius`; `median` takes the median distance of the updates from the center anew in
    each step. The paper's proof asks for momentum at the sites as well.
    """

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The center after the last step, and how many updates that step cut."""
        center, share, cut = sent, weights / weights.sum(), 0
        for _ in range(self.options.clip_steps):
            away = stack - center
            length = torch.linalg.vector_norm(away, dim=1)
            radius = length.median() if self.options.radius == "median" else self.options.radius
            shrink = torch.where(length > radius, radius / length.clamp(min=1e-300), 1.0)
            cut = int((length > radius).sum())
            center = center + (share * shrink) @ away
        return self.group.unpack(center), {"clipped": float(cut)}
