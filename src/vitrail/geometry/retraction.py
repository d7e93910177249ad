"""Ways back to the manifold after a step along a tangent vector, all through p x p matrices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitrail.geometry.frames import orthonormalize

Angle = Callable[[Tensor], Tensor]


def qr(x: Tensor, step: Tensor) -> Tensor:
    """The Q of x + step."""
    return orthonormalize(x + step)


def polar(x: Tensor, step: Tensor) -> Tensor:
    """(x + step) (I + step^T step)^(-1/2), the frame nearest to x + step."""
    squares, vectors = _spectrum(step)
    shrunk = (vectors * (1 + squares).rsqrt()[..., None, :]) @ vectors.mT
    return _polish((x + step) @ shrunk)


def arctan(x: Tensor, step: Tensor) -> Tensor:
    """The top eigenspace of P + x step^T + step x^T, without an n x n matrix.

    Each principal direction of the step turns by arctan(2 s) / 2, s its singular value: a turn
    of at most 45 degrees, however long the step.
    """
    return _turn(x, step, lambda s: torch.atan(2 * s) / 2)


def geodesic(x: Tensor, step: Tensor) -> Tensor:
    """The exponential map of the Grassmann manifold: each direction turns by s."""
    return _turn(x, step, lambda s: s)


def logarithm(x: Tensor, y: Tensor) -> Tensor:
    """The horizontal step whose geodesic leads from the span of x to that of y.

    With x^T y = W cos V^T the columns of y V - x W cos have length sin, so nothing is inverted.
    """
    w, cosines, v = torch.linalg.svd(x.mT @ y, full_matrices=False)
    rise = y @ v.mT - x @ (w * cosines[..., None, :])
    sines = torch.linalg.vector_norm(rise, dim=-2)
    angles = torch.atan2(sines, cosines)
    ratio = torch.where(sines > 0, angles / sines, torch.ones_like(sines))
    tangent: Tensor = (rise * ratio[..., None, :]) @ w.mT
    return tangent


def _turn(x: Tensor, step: Tensor, angle: Angle) -> Tensor:
    """x V cos(t) V^T + step V (sin(t) / s) V^T with step^T step = V s^2 V^T."""
    squares, vectors = _spectrum(step)
    sizes = squares.sqrt()
    turns = angle(sizes)
    ratio = torch.where(sizes > 0, turns.sin() / sizes, torch.ones_like(sizes))
    stay = (vectors * turns.cos()[..., None, :]) @ vectors.mT
    go = (vectors * ratio[..., None, :]) @ vectors.mT
    return _polish(x @ stay + step @ go)


def _spectrum(step: Tensor) -> tuple[Tensor, Tensor]:
    squares, vectors = torch.linalg.eigh(step.mT @ step)
    return squares.clamp_min(0), vectors


def _polish(frames: Tensor) -> Tensor:
    """One Newton step to the polar factor, so that rounding does not add up over many steps."""
    return 1.5 * frames - 0.5 * frames @ (frames.mT @ frames)
