"""The Stiefel manifold: frames themselves, with the metric of the space around them."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.geometry import retraction
from vitrail.geometry.frames import (
    align_frames,
    check_frames,
    draw_frames,
    find_problem,
    polar_factor,
)
from vitrail.geometry.manifold import Manifold
from vitrail.geometry.site_weights import compute_shares


def project(x: Tensor, v: Tensor) -> Tensor:
    """v - x sym(x^T v): what keeps columns orthonormal to first order."""
    cross = x.mT @ v
    return v - x @ ((cross + cross.mT) / 2)


def distance(x: Tensor, y: Tensor) -> Tensor:
    """|x - y|_F, the length of the chord."""
    norms: Tensor = torch.linalg.vector_norm(x - y, dim=(-2, -1))
    return norms


def mean(
    frames: Tensor,
    weights: Tensor | None = None,
    *,
    align: bool = True,
    reference: Tensor | None = None,
) -> Tensor:
    """The polar factor of the weighted mean of frames [sites, ..., n, p].

    With `align` each frame is first turned inside its span towards the reference (left out: the
    polar factor of the plain mean), so that sites which agree on the span but not on the basis
    do not cancel out.
    """
    wide = check_frames(frames).to(torch.float64)
    if wide.dim() < 3 or not len(wide):
        raise ValueError(f"a mean needs frames of sites [sites, ..., n, p], not {list(wide.shape)}")
    share = compute_shares(weights, wide)[..., None, None]
    if align:
        target = polar_factor((share * wide).sum(0)) if reference is None else reference
        wide = align_frames(wide, target.to(torch.float64))
    return polar_factor((share * wide).sum(0)).to(frames.dtype)


STIEFEL = Manifold(
    name="stiefel",
    project=project,
    retractions={"qr": retraction.qr, "polar": retraction.polar},
    distance=distance,
    problem=find_problem,
    random=draw_frames,
    dimension=lambda n, p: n * p - p * (p + 1) // 2,
)
