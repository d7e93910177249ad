"""Scatter matrices of classes: what an image adds is bounded, so the sum can be made private."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.grid_noise import add_noise
from vitrail.local.evaluate import CHUNK, compute_features
from vitrail.local.session import Site
from vitrail.models.heads.subspace_layers import compute_coordinates
from vitrail.rng import Stream


@contextmanager
def restore_received(site: Site) -> Iterator[None]:
    """The site's model as it came, inside the block: nothing of its own images is in it."""
    trained = site.model.values.clone()
    site.model.values.copy_(site.received)
    try:
        yield
    finally:
        site.model.values.copy_(trained)


@torch.no_grad()
def compute_contributions(z: Tensor, labels: Tensor, frames: Tensor, patches: int) -> Tensor:
    """(1/k) sum over an image's top k patches of z z^T / |z|^2, [N, n, n] in float64.

    Patches are ranked by their energy in the received subspace of the image's class. Each
    image's matrix has Frobenius norm at most 1; patches of length 0 add nothing.
    """
    z = torch.nan_to_num(z.double(), 0.0, 0.0, 0.0)
    unit = F.normalize(z, dim=1, eps=1e-30)
    energy = compute_coordinates(unit, frames.double()).square().sum(2).flatten(2)
    scores = energy[torch.arange(len(z)), labels]
    count = min(patches, scores.shape[1])
    best = scores.topk(count, dim=1).indices
    chosen = unit.flatten(2).gather(2, best[:, None].expand(-1, z.shape[1], -1))
    return chosen @ chosen.mT / count


def compute_scatter(site: Site, frames: Tensor, patches: int) -> Tensor:
    """The sum of all training images' contributions by class, [classes, n, n] in float64.

    Features are those of the received model, which is public; a private one would void the bound.
    """
    classes, n = frames.shape[:2]
    total = torch.zeros(classes, n, n, dtype=torch.float64)
    rows = site.rows.train
    with restore_received(site):
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            labels = site.inputs.targets(part)
            z = compute_features(site.model.network, site.inputs, part)
            parts = compute_contributions(z, labels, frames.to(z.device), patches)
            total.index_add_(0, labels.cpu(), parts.cpu())
    return total


def add_symmetric_noise(matrices: Tensor, deviation: float, source: Stream) -> Tensor:
    """Symmetric matrices with white noise on every number, brought back to symmetric ones.

    (A + A^T) / 2 costs nothing more; what is left of the noise has the deviation on the diagonal
    and 1/sqrt(2) of it beside, where every number counts twice.
    """
    noised = add_noise(matrices, deviation, source)
    return (noised + noised.mT) / 2


def count_surviving_sites(deviation: float, n: int) -> int:
    """How many sites that agree it takes until their eigengap stands out of noise in the sum.

    K equal projectors have a gap of K; the noise moves an eigenvalue by its spectral norm, about
    deviation sqrt(2 n), and there are two of them.
    """
    return math.ceil(2 * deviation * math.sqrt(2 * n))
