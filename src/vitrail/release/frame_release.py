"""Frames at the door: what leaves tells which subspace it is, and nothing about its basis."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.geometry import canonicalize, deviation, polar_factor
from vitrail.geometry.frames import get_tolerance
from vitrail.local.session import Site
from vitrail.release.message import Schema


def project_to_manifold(
    tensors: Mapping[str, Tensor], site: Site, schema: Schema
) -> dict[str, Tensor]:
    """The tensors, with frames brought back to their manifold after a defense touched them.

    A subspace leaves as the frame nearest to the one received, which is a function of the
    subspace alone. What is not finite is left for the guard to refuse.
    """
    projected = dict(tensors)
    curved = [f for f in schema.up if f.geometry != "euclidean"]
    received = site.model.layout.views(site.received.cpu()) if curved else {}
    for field in curved:
        frames = projected[field.name]
        if not bool(torch.isfinite(frames).all()):
            continue
        if frames.numel() and float(deviation(frames).max()) > get_tolerance(frames.dtype):
            frames = polar_factor(frames)
        if field.geometry == "grassmann":
            frames = canonicalize(frames, like=received[field.name.removeprefix("model/")])
        projected[field.name] = frames
    return projected
