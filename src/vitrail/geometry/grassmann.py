"""The Grassmann manifold: subspaces, each held as any one of its frames.

A tangent vector is the horizontal one: orthogonal to the frame (Edelman, Arias and Smith 1998).
"""

from __future__ import annotations

from torch import Tensor

from vitrail.geometry import retraction
from vitrail.geometry.angles import (
    chordal_distance,
    geodesic_distance,
    principal_angles,
    projection_distance,
)
from vitrail.geometry.frames import canonicalize, draw_frames, find_problem
from vitrail.geometry.manifold import Manifold
from vitrail.geometry.retraction import logarithm
from vitrail.geometry.subspace_mean import Consensus, mean


def project(x: Tensor, v: Tensor) -> Tensor:
    """(I - x x^T) v: what changes the subspace, and nothing that only turns its basis."""
    return v - x @ (x.mT @ v)


GRASSMANN = Manifold(
    name="grassmann",
    project=project,
    retractions={
        "arctan": retraction.arctan,
        "qr": retraction.qr,
        "polar": retraction.polar,
        "geodesic": retraction.geodesic,
    },
    distance=geodesic_distance,
    problem=find_problem,
    random=draw_frames,
    dimension=lambda n, p: p * (n - p),
)

__all__ = [
    "GRASSMANN",
    "Consensus",
    "canonicalize",
    "chordal_distance",
    "draw_frames",
    "geodesic_distance",
    "logarithm",
    "mean",
    "principal_angles",
    "project",
    "projection_distance",
]
