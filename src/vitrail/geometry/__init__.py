"""Geometry: Euclidean space, Stiefel and Grassmann manifolds, in frames n x p."""

from vitrail.geometry import euclidean, grassmann, stiefel
from vitrail.geometry.ambiguity import Ambiguity, Cost, compute_cost, fibre
from vitrail.geometry.euclidean import EUCLIDEAN
from vitrail.geometry.frames import canonicalize, deviation, orthonormalize, polar_factor
from vitrail.geometry.grassmann import GRASSMANN
from vitrail.geometry.manifold import Manifold
from vitrail.geometry.riemannian_sgd import ParameterGroup, RiemannianSGD
from vitrail.geometry.stiefel import STIEFEL
from vitrail.geometry.subspace_mean import Consensus

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
    "ParameterGroup",
    "RiemannianSGD",
    "canonicalize",
    "compute_cost",
    "deviation",
    "euclidean",
    "fibre",
    "grassmann",
    "orthonormalize",
    "polar_factor",
    "stiefel",
]
