"""The Grassmann manifold: subspaces, each held as any one of its frames.

A tangent vector is the horizontal one: orthogonal to the frame (Edelman, Arias and Smith 1998).
"""

from __future__ import annotations

from torch import Tensor

from vitrail.geometry import retraction
from vitrail.geometry.angles import chordal, geodesic, principal_angles, projection
from vitrail.geometry.frames import canonical, draw, problem
from vitrail.geometry.manifold import Manifold
from vitrail.geometry.mean import Consensus, mean
from vitrail.geometry.retraction import logarithm


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
    distance=geodesic,
    problem=problem,
    random=draw,
    dimension=lambda n, p: p * (n - p),
)

__all__ = [
    "GRASSMANN",
    "Consensus",
    "canonical",
    "chordal",
    "draw",
    "geodesic",
    "logarithm",
    "mean",
    "principal_angles",
    "project",
    "projection",
]
