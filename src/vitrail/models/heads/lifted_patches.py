"""Patches in homogeneous coordinates: linear subspaces of them are affine subspaces of patches.

A subspace through the origin can say that a patch points in a direction, never where it lies.
With one constant channel more, a p-dimensional subspace stands for an affine one of dimension
p - 1 (Lim, Wong and Ye 2021, "The Grassmannian of affine subspaces"), and nothing else changes:
frames, means and steps are those of the Grassmann manifold.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.geometry import orthonormalize


class LiftedPatches(nn.Module):
    """Patches [N, n, H, W] times a factor, and one channel more that is constant."""

    def __init__(self, factor: float, lift: float) -> None:
        super().__init__()
        self.factor, self.lift = factor, lift

    def forward(self, z: Tensor) -> Tensor:
        """[N, n + 1, H, W]; without a lift only the factor."""
        z = self.factor * z if self.factor != 1.0 else z
        return F.pad(z, (0, 0, 0, 0, 0, 1), value=self.lift) if self.lift else z


def draw_lifted_frames(classes: int, n: int, p: int) -> Tensor:
    """Frames [classes, n, p] that hold the constant direction, the same for every class.

    Equal frames give equal scores, so what is learned first is what the classes differ in.
    """
    frame = torch.randn(n, p)
    frame[:, 0] = 0.0
    frame[-1, 0] = 1.0
    return orthonormalize(frame).repeat(classes, 1, 1)
