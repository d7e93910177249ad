"""Medians of class subspaces: the robust counterparts of the exact Grassmann mean."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Group, Metrics, PerSiteRule, Tensors
from vitrail.aggregate.subspace_rules import CLASS_COUNTS, compute_agreement, select_frame_fields
from vitrail.config.schema import Aggregate
from vitrail.geometry import canonicalize, grassmann, polar_factor
from vitrail.geometry.subspace_median import (
    SubspaceMedian,
    compute_weighted_mean,
    find_subspace_median,
    find_trimmed_mean,
)


class _RobustSubspaces(PerSiteRule):
    """What both rules share: who votes for a class, and what is reported.

    Where sites count their images by class, only those that hold a class vote for it: others
    send what they received, and would freeze the median of a rare class there. A class that
    nobody votes for stays as it was.
    """

    how: Literal["grassmann-median", "grassmann-trimmed"]

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        select_frame_fields(group.fields, self.how)

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The subspaces, how far the sites agree, and in how many classes too few sites vote."""
        before, rows = self.group.unpack(sent), [self.group.unpack(row) for row in stack]
        tensors: Tensors = {}
        metrics: Metrics = {}
        for field in select_frame_fields(self.group.fields, self.how):
            frames = _stack_frames(rows, field.name)
            votes = self._count_votes(rows, weights, frames.shape[1:-2])
            search = self._search(frames, votes)
            silent = votes.sum(0) <= 0
            frame = torch.where(silent[..., None, None], before[field.name].double(), search.frame)
            tensors[field.name] = canonicalize(frame, before[field.name]).to(field.dtype)
            consensus = grassmann.mean(frames, votes)
            agreement, figures = compute_agreement(
                field.name,
                consensus.eigengap,
                consensus.consensus,
                tensors[field.name],
                list(frames),
            )
            tensors, metrics = tensors | agreement, metrics | figures
            few = (votes > 0).sum(0) < 2 * self.options.byzantine + 1
            metrics |= {"median_steps": float(search.steps), "few_voters": float(few.sum())}
        return tensors, metrics

    def merge(self, stack: Tensor, weights: Tensor) -> Tensor:
        """The mean subspaces of a bucket, and the counts of all its sites."""
        rows = [self.group.unpack(row) for row in stack]
        merged: Tensors = {}
        for field in self.group.fields:
            if field.name == CLASS_COUNTS:
                merged[field.name] = torch.stack([row[field.name] for row in rows]).sum(0)
                continue
            frames = _stack_frames(rows, field.name)
            votes = self._count_votes(rows, weights, frames.shape[1:-2])
            merged[field.name] = compute_weighted_mean(frames, votes)
        return self.group.pack(merged)

    def _search(self, frames: Tensor, votes: Tensor) -> SubspaceMedian:
        raise NotImplementedError(f"{type(self).__name__} must search")

    def _count_votes(self, rows: list[Tensors], weights: Tensor, lead: torch.Size) -> Tensor:
        """How much each site counts for each class, [sites, classes]."""
        votes = weights.view(-1, *(1 for _ in lead)).expand(-1, *lead)
        if CLASS_COUNTS not in rows[0]:
            return votes
        held = torch.stack([row[CLASS_COUNTS] > 0 for row in rows])
        return votes * held.to(votes.dtype).expand(votes.shape)


def _stack_frames(rows: list[Tensors], name: str) -> Tensor:
    """The frames of all sites, orthonormal in float64."""
    return polar_factor(torch.stack([row[name] for row in rows]).to(torch.float64))


@RULES.register("grassmann-median")
class GrassmannMedian(_RobustSubspaces):
    """The median of subspaces: the least weighted sum of distances (Mankovich et al. 2022)."""

    how = "grassmann-median"

    def _search(self, frames: Tensor, votes: Tensor) -> SubspaceMedian:
        return find_subspace_median(frames, votes)


@RULES.register("grassmann-trimmed")
class GrassmannTrimmed(_RobustSubspaces):
    """The mean of subspaces without the share `aggregate.trim` that is farthest from the median."""

    how = "grassmann-trimmed"

    def _search(self, frames: Tensor, votes: Tensor) -> SubspaceMedian:
        return find_trimmed_mean(frames, votes, self.options.trim)
