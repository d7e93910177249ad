"""Frames: n x p matrices with orthonormal columns, batched over leading dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.rng import Key

Source = Key | torch.Generator
_SINGULAR = 1e-6


def get_tolerance(dtype: torch.dtype) -> float:
    """How far from orthonormal a frame of this type may be and still count as one."""
    return 1e-4 if dtype == torch.float32 else 1e-9


def deviation(frames: Tensor) -> Tensor:
    """The largest entry of |U^T U - I| of each frame [..., n, p], as [...]."""
    p = frames.shape[-1]
    if not p:
        return frames.new_zeros(frames.shape[:-2])
    eye = torch.eye(p, dtype=frames.dtype, device=frames.device)
    return (frames.mT @ frames - eye).abs().amax((-2, -1))


def find_problem(frames: Tensor, limit: float | None = None) -> str | None:
    """Why these are no frames, in one clause, or None if they are."""
    if frames.dim() < 2:
        return f"a frame is a matrix n x p, not a tensor of shape {list(frames.shape)}"
    n, p = frames.shape[-2:]
    if p > n:
        return f"there is no subspace of dimension {p} in {n} dimensions"
    if not frames.is_floating_point():
        return f"frames are floating-point numbers, not {frames.dtype}"
    if not frames.numel():
        return None
    if not bool(torch.isfinite(frames).all()):
        return "some of their values are not finite"
    worst = float(deviation(frames).max())
    if worst <= (get_tolerance(frames.dtype) if limit is None else limit):
        return None
    smallest = float(torch.linalg.svdvals(frames.double())[..., -1].min())
    kind = "rank-deficient" if smallest < _SINGULAR else "not orthonormal"
    return f"they are {kind}: U^T U deviates from the identity by {worst:.3g}"


def check_frames(frames: Tensor, name: str = "frames") -> Tensor:
    """The same frames, or a ValueError that says what is wrong with them."""
    reason = find_problem(frames)
    if reason is not None:
        raise ValueError(f"{name}: {reason}")
    return frames


def orthonormalize(matrices: Tensor) -> Tensor:
    """The Q of a QR decomposition whose R has a positive diagonal, which makes it unique."""
    q, r = torch.linalg.qr(matrices)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(matrices.dtype)
    oriented: Tensor = q * signs[..., None, :]
    return oriented


def polar_factor(matrices: Tensor) -> Tensor:
    """The nearest matrix with orthonormal columns: W V^T of the thin SVD W S V^T."""
    w, _, v = torch.linalg.svd(matrices, full_matrices=False)
    factor: Tensor = w @ v
    return factor


def draw_frames(
    shape: tuple[int, ...], source: Source, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Frames [..., n, p] uniform over all of them: Q of a Gaussian matrix."""
    if len(shape) < 2 or shape[-1] > shape[-2]:
        raise ValueError(f"there are no frames of shape {list(shape)}: they are n x p with p <= n")
    generator = source.torch() if isinstance(source, Key) else source
    return orthonormalize(torch.randn(shape, generator=generator, dtype=dtype))


def align_frames(frames: Tensor, reference: Tensor) -> Tensor:
    """Each frame turned inside its span to be as near to the reference as it can be.

    U times the polar factor of U^T R (Schoenemann 1966): it depends on the span of U alone as
    long as no direction of the span is orthogonal to all of R.
    """
    return frames @ polar_factor(frames.mT @ reference)


def canonicalize(frames: Tensor, like: Tensor | None = None) -> Tensor:
    """One frame for each subspace: two frames with the same span give the same result.

    It is the frame nearest to `like`; without `like`, and for subspaces where the nearest is
    not unique, that nearest to the coordinate axes which lie closest to the subspace. Computed
    in float64, so that the choice of basis is forgotten to the precision of the input.
    """
    wide = frames.to(torch.float64)
    if like is None:
        return align_frames(wide, _axes(wide)).to(frames.dtype)
    reference = like.to(torch.float64)
    aligned = align_frames(wide, reference)
    if frames.numel():
        unclear = torch.linalg.svdvals(wide.mT @ reference)[..., -1] < _SINGULAR
        if bool(unclear.any()):
            aligned = torch.where(
                unclear[..., None, None], align_frames(wide, _axes(wide)), aligned
            )
    return aligned.to(frames.dtype)


def _axes(frames: Tensor) -> Tensor:
    """The p coordinate axes chosen by pivoting over the rows, in ascending order, as [..., n, p].

    Row norms of what is not yet explained depend on the subspace alone; rounding them keeps
    rows that tie from being told apart by noise.
    """
    n, p = frames.shape[-2:]
    rest, chosen = frames, []
    for _ in range(p):
        pivot = rest.square().sum(-1).mul(1e9).round().argmax(-1, keepdim=True)  # [..., 1]
        chosen.append(pivot)
        row = rest.gather(-2, pivot[..., None].expand(*pivot.shape, p))  # [..., 1, p]
        row = row / row.norm(dim=-1, keepdim=True)
        rest = rest - (rest @ row.mT) @ row
    order = torch.cat(chosen, -1).sort(-1).values if chosen else frames.new_empty(0)
    eye = torch.eye(n, dtype=frames.dtype, device=frames.device)
    return eye[order.long()].mT
