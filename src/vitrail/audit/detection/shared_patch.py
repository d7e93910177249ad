"""Where in each image the patch is that a class's images share and others lack."""

from __future__ import annotations

import torch
from torch import Tensor


def locate_class_patch(cells: Tensor, of_class: Tensor) -> Tensor:
    """For each image of [N, D, P], where the patch is that most looks like one which the images
    in `of_class` share and the others lack."""
    cells = (cells - cells.mean((0, 2), keepdim=True)) / cells.std((0, 2), keepdim=True).clamp(1e-6)
    patch = _find_prototype(cells, of_class)
    return (cells - patch[None, :, None]).square().sum(1).argmin(1)


def _find_prototype(cells: Tensor, of_class: Tensor) -> Tensor:
    """The patch of a class that is closest to a patch in each of its images, and in no other."""
    candidates = cells[of_class].transpose(1, 2).reshape(-1, cells.shape[1])
    distances = _compute_nearest_distances(candidates, cells)  # [patches, images]
    apart = distances[:, ~of_class].mean(1) - distances[:, of_class].mean(1)
    return candidates[int(apart.argmax())]


def _compute_nearest_distances(patches: Tensor, cells: Tensor) -> Tensor:
    """The distance of each patch [k, D] to the nearest one of each image [N, D, P], as [k, N]."""
    flat = cells.transpose(1, 2).reshape(-1, cells.shape[1])
    distances: Tensor = torch.cdist(patches, flat)
    return distances.view(len(patches), len(cells), -1).amin(2)
