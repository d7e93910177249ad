"""Medians of subspaces: means that some wild subspaces among many do not move far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.geometry.subspace_mean import compute_top_space

_SMOOTHING, _TOLERANCE, _MOST_STEPS = 1e-6, 1e-9, 500


@dataclass(frozen=True)
class SubspaceMedian:
    """A median subspace for each class, its cost, and how many steps the search took."""

    frame: Tensor  # [..., n, p]
    cost: Tensor  # [...], the weighted sum of distances to it
    steps: int


def compute_square_distances(frames: Tensor, center: Tensor) -> Tensor:
    """p - |U^T U_j|^2, half the squared distance of projectors, for frames [sites, ..., n, p]."""
    overlap = (center.mT @ frames).square().sum((-2, -1))
    return (center.shape[-1] - overlap).clamp(min=0)


def compute_weighted_mean(frames: Tensor, weights: Tensor) -> Tensor:
    """The top eigenspace of sum_j w_j U_j U_j^T, for weights [sites, ...] of at least 0.

    The weights of a class that nobody speaks for are taken as equal.
    """
    total = weights.sum(0)
    share = torch.where(total > 0, weights / total.clamp(min=1e-300), 1 / len(weights))
    stacked = (frames * share.sqrt()[..., None, None]).movedim(0, -2).flatten(-2)
    return compute_top_space(stacked, frames.shape[-1])[0]


def find_subspace_median(frames: Tensor, weights: Tensor) -> SubspaceMedian:
    """The subspaces with the least weighted sum of projection distances to frames
    [sites, ..., n, p] in float64, weights [sites, ...].

    Iteratively reweighted sums of projectors, w_j = a_j / sqrt(d_j^2 + eps^2) with
    d_j^2 = p - |U^T U_j|^2 (FlagIRLS, Mankovich et al. 2022, arXiv:2203.04437). The search starts
    at the mean and at the medoid, and the cheaper end is taken: the cost is not convex.
    """
    mean = compute_weighted_mean(frames, weights)
    first, steps_first = _descend(frames, weights, mean)
    second, steps_second = _descend(frames, weights, _find_medoid(frames, weights))
    costs = [_sum_distances(frames, weights, frame) for frame in (first, second)]
    better = costs[1] < costs[0]
    frame = torch.where(better[..., None, None], second, first)
    return SubspaceMedian(frame, torch.minimum(*costs), max(steps_first, steps_second))


def find_trimmed_mean(frames: Tensor, weights: Tensor, trim: float) -> SubspaceMedian:
    """The mean of subspaces without those farthest from their median, class by class.

    Of the sites that have any weight for a class, the share `trim` is left out, rounded up; one
    always stays.
    """
    median = find_subspace_median(frames, weights)
    distance = compute_square_distances(frames, median.frame)
    voters = (weights > 0).sum(0)
    dropped = torch.minimum(torch.ceil(trim * voters - 1e-9).long(), (voters - 1).clamp(min=0))
    ranks = torch.where(weights > 0, distance, -1.0).argsort(0, descending=True).argsort(0)
    kept = torch.where(ranks < dropped, 0.0, weights)
    frame = compute_weighted_mean(frames, kept)
    return SubspaceMedian(frame, _sum_distances(frames, weights, frame), median.steps)


def _descend(frames: Tensor, weights: Tensor, start: Tensor) -> tuple[Tensor, int]:
    frame = start
    for step in range(_MOST_STEPS):
        square = compute_square_distances(frames, frame)
        moved = compute_weighted_mean(frames, weights / (square + _SMOOTHING**2).sqrt())
        change = compute_square_distances(moved[None], frame)[0]
        frame = moved
        if float(change.max()) <= _TOLERANCE**2 or not change.numel():
            return frame, step + 1
    return frame, _MOST_STEPS


def _find_medoid(frames: Tensor, weights: Tensor) -> Tensor:
    """The site's frame with the least weighted sum of distances to all, class by class."""
    costs = torch.stack([_sum_distances(frames, weights, frame) for frame in frames])
    costs = torch.where(weights > 0, costs, torch.inf)
    index = costs.argmin(0)[None, ..., None, None].expand(1, *frames.shape[1:])
    return frames.gather(0, index)[0]


def _sum_distances(frames: Tensor, weights: Tensor, center: Tensor) -> Tensor:
    return (weights * compute_square_distances(frames, center).sqrt()).sum(0)
