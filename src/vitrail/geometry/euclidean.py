"""Flat space as a manifold, so that one optimizer steps everything."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.geometry.frames import Source
from vitrail.geometry.manifold import Manifold


def project(x: Tensor, v: Tensor) -> Tensor:
    """Every direction is tangent."""
    del x
    return v


def retract(x: Tensor, step: Tensor) -> Tensor:
    """x + step."""
    return x + step


def distance(x: Tensor, y: Tensor) -> Tensor:
    """|x - y| over the last two dimensions."""
    norms: Tensor = torch.linalg.vector_norm(x - y, dim=(-2, -1))
    return norms


def find_problem(x: Tensor) -> str | None:
    """Only values that are not finite are no points."""
    return None if bool(torch.isfinite(x).all()) else "some of its values are not finite"


def draw_points(
    shape: tuple[int, ...], source: Source, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Standard normal points."""
    generator = source if isinstance(source, torch.Generator) else source.torch()
    return torch.randn(shape, generator=generator, dtype=dtype)


EUCLIDEAN = Manifold(
    name="euclidean",
    project=project,
    retractions={"plus": retract},
    distance=distance,
    problem=find_problem,
    random=draw_points,
    dimension=lambda n, p: n * p,
)
