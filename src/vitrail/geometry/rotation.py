"""The rotation that turns one cloud of points onto another: orthogonal Procrustes.

Schoenemann 1966; without reflections, Kabsch 1976.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.geometry.frames import polar_factor
from vitrail.threads import one_thread

_RANK = 1e-7  # singular values below this share of the largest say nothing: points are float32


@dataclass(frozen=True)
class Turn:
    """x -> (x - center) R + target, and back; `residual` is the share of the target's spread about
    its mean that no rotation explains (0: the clouds differ by a rotation, 1: by everything)."""

    rotation: Tensor  # [D, D]
    center: Tensor  # [D], the mean of the points
    target: Tensor  # [D], the mean of what they are turned onto
    residual: float

    def apply(self, x: Tensor) -> Tensor:
        """Vectors [m, D] of the points' space in the target's."""
        turned = (x.double() - self.center) @ self.rotation + self.target
        return turned.to(x)

    def undo(self, x: Tensor) -> Tensor:
        """Vectors [m, D] of the target's space in the points'."""
        turned = (x.double() - self.target) @ self.rotation.mT + self.center
        return turned.to(x)


@one_thread()  # two threads factorize a matrix to other bits
def fit_turn(points: Tensor, target: Tensor) -> Turn:
    """argmin over rotations R of |(points - mean) R - (target - mean)|, both [n, D], in float64.

    Where the points say nothing about a direction, the rotation nearest to none is taken, so that
    equal clouds give the identity. Clouds that are no numbers are left as they are, and the
    residual is no number.
    """
    if points.shape != target.shape or points.dim() != 2 or not len(points):
        raise ValueError(f"clouds of shapes {list(points.shape)} and {list(target.shape)}")
    points, target = points.double().cpu(), target.double().cpu()
    center, goal = points.mean(0), target.mean(0)
    if not bool(points.isfinite().all() & target.isfinite().all()):
        zero = torch.zeros_like(center)
        return Turn(torch.eye(len(center)).double(), zero, zero, float("nan"))
    start, end = points - center, target - goal
    rotation = fit_rotation(start.mT @ end)
    spread = end.square().sum()
    left = (start @ rotation - end).square().sum()
    residual = float(left / spread) if float(spread) > 0 else float(float(left) > 0)
    return Turn(rotation, center, goal, residual)


def fit_rotation(moments: Tensor) -> Tensor:
    """The rotation R of the largest trace(R^T M) for M [D, D]; free directions stay near home."""
    u, s, v = torch.linalg.svd(moments)
    rank = int((s > _RANK * s[0]).sum())
    rotation: Tensor = u[:, :rank] @ v[:rank]
    if rank < len(s):
        free = polar_factor(u[:, rank:].mT @ v[rank:].mT)
        rotation = rotation + u[:, rank:] @ free @ v[rank:]
    if float(torch.linalg.det(rotation)) < 0:  # a reflection: give up the weakest direction
        weakest = v[-1]
        rotation = rotation - 2 * torch.outer(rotation @ weakest, weakest)
    return rotation
