"""Steps from one subspace to another in the affine chart around it, where steps can be added up.

The span of U + T, with T orthogonal to U, is any subspace no direction of which is orthogonal to
U; T is then the only such step (Absil, Mahony and Sepulchre 2004, "Riemannian geometry of Grassmann
manifolds with a view on algorithmic computation"). To first order it is the change of the
projector, (I - P) P' U, with n p numbers instead of n (n + 1) / 2, and unlike a geodesic step it
leads back to itself however long it is: its singular values are the tangents of the angles.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.geometry.frames import polar_factor
from vitrail.geometry.retraction import polar

_LEAST_COSINE = 1e-9  # below, a direction counts as this far from orthogonal to the start


def compute_step(start: Tensor, frames: Tensor) -> Tensor:
    """The step [..., n, p] from the span of `start` to that of `frames`, in float64.

    It depends on both spans and on the basis of `start`, not on that of `frames`.
    """
    x, y = polar_factor(start.double()), frames.double()
    w, cosines, v = torch.linalg.svd(x.mT @ y, full_matrices=False)
    rise = y @ v.mT - x @ (w * cosines[..., None, :])
    rise = rise - x @ (x.mT @ rise)
    step: Tensor = (rise / cosines.clamp_min(_LEAST_COSINE)[..., None, :]) @ w.mT
    return step


def follow_step(start: Tensor, step: Tensor) -> Tensor:
    """The frame where a step leads, nearest to `start`, in float64; what of the step lies inside
    the span of `start` is left out."""
    x = polar_factor(start.double())
    step = step.double()
    return polar(x, step - x @ (x.mT @ step))
