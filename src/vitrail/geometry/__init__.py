"""Geometry: Euclidean space, Stiefel and Grassmann manifolds, in frames n x p."""

from vitrail.geometry import euclidean, grassmann, stiefel
from vitrail.geometry.ambiguity import Ambiguity, Cost, cost, fibre
from vitrail.geometry.euclidean import EUCLIDEAN
from vitrail.geometry.frames import canonical, deviation, orthonormal, polar
from vitrail.geometry.grassmann import GRASSMANN
from vitrail.geometry.manifold import Manifold
from vitrail.geometry.mean import Consensus
from vitrail.geometry.optimizer import Parameters, RiemannianSGD
from vitrail.geometry.stiefel import STIEFEL

MANIFOLDS = {manifold.name: manifold for manifold in (EUCLIDEAN, STIEFEL, GRASSMANN)}

__all__ = [
    "EUCLIDEAN",
    "GRASSMANN",
    "MANIFOLDS",
    "STIEFEL",
    "Ambiguity",
    "Consensus",
    "Cost",
    "Manifold",
    "Parameters",
    "RiemannianSGD",
    "canonical",
    "cost",
    "deviation",
    "euclidean",
    "fibre",
    "grassmann",
    "orthonormal",
    "polar",
    "stiefel",
]
