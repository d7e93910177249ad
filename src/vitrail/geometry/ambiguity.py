"""What a released subspace leaves open, in numbers. None of them is a privacy guarantee.

A subspace does not say which basis spans it, and a release of few numbers cannot fix every
pixel of an image to first order. Both are facts about counting: an attacker with a prior over
images, or with many releases, may still find out what the counting leaves open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NOTE = "non-identifiability, not a privacy guarantee"


def fibre(p: int) -> int:
    """The dimension of all frames of one p-dimensional subspace: p (p - 1) / 2."""
    return p * (p - 1) // 2


@dataclass(frozen=True)
class Cost:
    """What one site sends for its subspaces in a round, and how much of it is free to vary.

    `frames` are the n p numbers a class that travel, `packed` the n (n + 1) / 2 of a projector
    in a secure sum, `projectors` the n^2 of a plain one. `freedoms` are p (n - p) a class: what
    a subspace is made of; `hidden` are p (p - 1) / 2 a class: the choice of basis, which stays.
    """

    classes: int
    n: int
    p: int
    itemsize: int = 4

    @property
    def frames(self) -> int:
        """Numbers in frame form."""
        return self.classes * self.n * self.p

    @property
    def packed(self) -> int:
        """Numbers as upper triangles of projectors."""
        return self.classes * self.n * (self.n + 1) // 2

    @property
    def projectors(self) -> int:
        """Numbers as full projectors."""
        return self.classes * self.n * self.n

    @property
    def freedoms(self) -> int:
        """The dimension of the product of Grassmann manifolds."""
        return self.classes * self.p * (self.n - self.p)

    @property
    def hidden(self) -> int:
        """The dimension of the fibres over it."""
        return self.classes * fibre(self.p)

    def bytes(self, numbers: int) -> int:
        """Bytes of so many numbers on the wire."""
        return numbers * self.itemsize


def compute_cost(classes: int, n: int, p: int, itemsize: int = 4) -> Cost:
    """The cost of `classes` subspaces of dimension p in n dimensions."""
    if not 0 < p <= n or classes < 1:
        raise ValueError(f"there are no {classes} subspaces of dimension {p} in {n} dimensions")
    return Cost(classes, n, p, itemsize)


@dataclass(frozen=True)
class Ambiguity:
    """At one image: its `pixels`, the `released` numbers, and the `rank` of the Jacobian between.

    To first order the released numbers do not change along `dimension` = pixels - rank
    directions of the image.
    """

    pixels: int
    released: int
    rank: int
    singular_values: Tensor  # descending

    @property
    def dimension(self) -> int:
        """The directions in which the image can change unseen, to first order, at this image."""
        return self.pixels - self.rank

    @property
    def sentence(self) -> str:
        """The numbers in words, with what they are not."""
        return (
            f"{self.released} released numbers depend on {self.pixels} pixels with rank "
            f"{self.rank}: {self.dimension} directions stay open at this image ({NOTE})"
        )


def measure_ambiguity(
    release: Callable[[Tensor], Tensor], image: Tensor, tolerance: float | None = None
) -> Ambiguity:
    """m minus the rank of the Jacobian from pixels to released numbers, at one image.

    `release` maps an image to the numbers that leave the site because of it (FedGraSP,
    appendix B); use float64, or the rank is that of the rounding. A singular value counts if it
    is over `tolerance` times the largest (left out: size of the matrix x machine epsilon).
    """
    if not image.is_floating_point() or not image.numel():
        raise ValueError("an image of floating-point pixels is needed, and not an empty one")
    point = image.detach()
    jacobian = _jacobian(release, point)
    if not bool(torch.isfinite(jacobian).all()):
        raise ValueError("the derivative of the release is not finite at this image")
    values = torch.linalg.svdvals(jacobian)
    if tolerance is None:
        tolerance = max(jacobian.shape) * torch.finfo(jacobian.dtype).eps
    largest = float(values[0]) if len(values) else 0.0
    rank = int((values > tolerance * largest).sum()) if largest > 0 else 0
    return Ambiguity(point.numel(), jacobian.shape[0], rank, values)


def _jacobian(release: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    """Row by row with one graph: released numbers x pixels."""
    x = image.clone().requires_grad_(True)
    numbers = release(x).reshape(-1)
    if not numbers.requires_grad:  # nothing released depends on the image
        return image.new_zeros(numbers.numel(), image.numel())
    rows = []
    for at in range(numbers.numel()):
        (row,) = torch.autograd.grad(
            numbers[at], x, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        rows.append(row.reshape(-1))
    return torch.stack(rows) if rows else image.new_zeros(0, image.numel())
