"""The mean of sites' steps away from the subspaces that were sent: a sum with few numbers in it."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Group, Metrics, Rule, Tensors
from vitrail.aggregate.subspace_rules import select_frame_fields
from vitrail.config.schema import Aggregate
from vitrail.geometry import canonicalize
from vitrail.geometry.subspace_step import compute_step, follow_step
from vitrail.grid_noise import add_noise
from vitrail.release.update import Update
from vitrail.rng import Stream

TANGENT = "grassmann-tangent"


@RULES.register(TANGENT)
class GrassmannTangent(Rule):
    """A step of all subspaces from where they were sent, along the mean of the sites' steps.

    What is added up are n p numbers a subspace, 0 for a site that changed nothing: noise on them
    meets no eigengap, and a clip bounds what one site can do.
    """

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        select_frame_fields(group.fields, TANGENT)

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """The steps times the weight."""
        before = self.group.unpack(sent)
        steps = [
            compute_step(before[field.name], update.tensors[field.name]).reshape(-1)
            for field in self.group.fields
        ]
        return weight * torch.cat(steps)

    def disturb(self, total: Tensor, deviation: float, source: Stream) -> Tensor:
        """White noise on every number; `finish` leaves out what of it lies inside a subspace."""
        return add_noise(total, deviation, source)

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """Where the mean step leads, as the frames nearest to those that were sent."""
        before, at = self.group.unpack(sent), 0
        tensors: Tensors = {}
        for field in self.group.fields:
            size = torch.Size(field.shape).numel()
            step = total[at : at + size].view(field.shape) / weight
            frames = follow_step(before[field.name], step)
            tensors[field.name] = canonicalize(frames, before[field.name]).to(field.dtype)
            at += size
        return tensors, {}
