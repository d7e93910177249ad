"""Angles between subspaces, and the three distances made of them.

Edelman, Arias and Smith 1998, arXiv:physics/9806030, section 4.3.
"""

from __future__ import annotations

import torch
from torch import Tensor


def principal_angles(x: Tensor, y: Tensor) -> Tensor:
    """The angles [..., p] between the spans of two frames, ascending, in 0..pi/2.

    Cosines lose small angles and sines large ones, so both are computed (Bjoerck and Golub
    1973).
    """
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError(f"frames of shape {list(x.shape)} and {list(y.shape)} do not compare")
    cross = x.mT @ y
    cosines = torch.linalg.svdvals(cross)
    sines = torch.linalg.svdvals(y - x @ cross).flip(-1)
    return torch.atan2(sines, cosines)


def projection_distance(x: Tensor, y: Tensor) -> Tensor:
    """|sin theta|, which is |P_x - P_y|_F / sqrt(2); the exact mean minimizes its squares."""
    return _norm(principal_angles(x, y).sin())


def geodesic_distance(x: Tensor, y: Tensor) -> Tensor:
    """|theta|, the length of the shortest path between the subspaces."""
    return _norm(principal_angles(x, y))


def chordal_distance(x: Tensor, y: Tensor) -> Tensor:
    """2 |sin(theta / 2)|, the smallest |x - y Q|_F over rotations Q."""
    return 2 * _norm((principal_angles(x, y) / 2).sin())


def _norm(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms
