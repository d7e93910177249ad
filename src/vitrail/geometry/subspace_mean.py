"""Means of subspaces, and how far those who are averaged agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitrail.geometry.frames import check_frames
from vitrail.geometry.retraction import arctan, geodesic, logarithm
from vitrail.geometry.site_weights import compute_shares

ConsensusKind = Literal["exact", "iterative", "karcher"]
Direction = Callable[[Tensor], Tensor]
Move = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Consensus:
    """A mean subspace for each class.

    With Xi the weighted mean of the projectors and lambda its eigenvalues, `eigengap` is
    lambda_p - lambda_{p+1} and `consensus` the mean of the top p: both are 1 where all sites
    hold the same subspace. A class without a gap has no agreed subspace. `iterations` and
    `converged` tell about the means that are found step by step.
    """

    frame: Tensor  # [..., n, p]
    eigengap: Tensor  # [...]
    consensus: Tensor  # [...]
    iterations: Tensor  # [...], int64, 0 for the exact mean
    converged: Tensor  # [...], bool


def mean(
    frames: Tensor,
    weights: Tensor | None = None,
    consensus: ConsensusKind = "exact",
    *,
    step: float = 1.0,
    tolerance: float = 1e-8,
    limit: int = 3000,
) -> Consensus:
    """The mean of subspaces [sites, ..., n, p], computed in float64.

    `exact`: the top eigenspace of Xi, which minimizes the squared projection distances (Ky Fan);
    `iterative`: FedGraSP's Algorithm 1, gradient ascent from the first site with a fixed step,
    which goes the same way; `karcher`: the minimizer of squared geodesic distances, the fixed
    point of U <- exp_U(sum a_j log_U(U_j)), sought from the exact mean. The last two stop when
    every gradient is at most `tolerance`, or after `limit` iterations.
    """
    wide = check_frames(frames).to(torch.float64)
    if wide.dim() < 3 or not len(wide):
        raise ValueError(f"a mean needs frames of sites [sites, ..., n, p], not {list(wide.shape)}")
    share = compute_shares(weights, wide)
    p = wide.shape[-1]
    stacked = (wide * share.sqrt()[..., None, None]).movedim(0, -2).flatten(-2)
    frame, values = compute_top_space(stacked, p)
    count = torch.zeros(frame.shape[:-2], dtype=torch.int64, device=frame.device)
    if consensus == "exact":
        settled = torch.ones_like(count, dtype=torch.bool)
    elif consensus == "iterative":
        frame, count, settled = _follow(
            wide[0],
            lambda u: ascent_gradient(stacked, u),
            lambda u, rise: arctan(u, step * rise),
            tolerance,
            limit,
        )
    elif consensus == "karcher":
        part = share[..., None, None]
        frame, count, settled = _follow(
            frame,
            lambda u: (part * logarithm(u.expand_as(wide), wide)).sum(0),
            geodesic,
            tolerance,
            limit,
        )
    else:
        raise ValueError(f"consensus is exact, iterative or karcher, not {consensus!r}")
    gap = values[..., p - 1] - values[..., p] if p else values.sum(-1)
    agreed = values[..., :p].sum(-1) / max(1, p)
    kind = frames.dtype
    return Consensus(frame.to(kind), gap.to(kind), agreed.to(kind), count, settled)


def compute_top_space(stacked: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """The p leading left singular vectors of [..., n, m], and at least p + 1 squared singular
    values, descending, zeros beyond the rank.

    Through the eigenvectors of the smaller Gram matrix, which is faster than a batched thin SVD.
    The top p squares are at least 1 / m for a mean of projectors, so squaring loses nothing.
    """
    n, m = stacked.shape[-2:]
    small = m < n
    values, vectors = torch.linalg.eigh(stacked.mT @ stacked if small else stacked @ stacked.mT)
    values, vectors = values.flip(-1).clamp_min(0), vectors.flip(-1)[..., :p]
    if small:
        vectors = stacked @ (vectors / values[..., None, :p].sqrt())
        vectors = 1.5 * vectors - 0.5 * vectors @ (vectors.mT @ vectors)
    missing = max(0, p + 1 - values.shape[-1])
    return vectors, torch.nn.functional.pad(values, (0, missing))


def leading_eigenvectors(matrices: Tensor, p: int) -> Tensor:
    """The eigenvectors of the p largest eigenvalues of symmetric matrices [..., n, n]."""
    vectors: Tensor = torch.linalg.eigh(matrices)[1][..., -p:]
    return vectors


def ascent_gradient(stacked: Tensor, frame: Tensor) -> Tensor:
    """The gradient (I - P) Xi U of tr(Xi P) / 2, with Xi = M M^T never formed."""
    pulled = stacked @ (stacked.mT @ frame)
    return pulled - frame @ (frame.mT @ pulled)


def _follow(
    frame: Tensor, direction: Direction, move: Move, tolerance: float, limit: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Go on from a frame until each direction is at most `tolerance` long, class by class.

    The end, after how many moves each class was there, and whether it was.
    """
    count = torch.full(frame.shape[:-2], limit, dtype=torch.int64, device=frame.device)
    settled = torch.zeros_like(count, dtype=torch.bool)
    for at in range(limit + 1):
        step = direction(frame)
        small = torch.linalg.vector_norm(step, dim=(-2, -1)) <= tolerance
        count = torch.where(small & ~settled, at, count)
        settled = settled | small
        if at == limit or bool(settled.all()):
            break
        frame = torch.where(settled[..., None, None], frame, move(frame, step))
    return frame, count, settled
