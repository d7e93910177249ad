"""Where a shortcut could be: the place a contrast names, what units look at, random places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.counterfactual.covering import match_colors, swap
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.shared_patch import locate_class_patch
from vitrail.audit.detection.tight_place import find_tight_place
from vitrail.audit.site_view import (
    SiteView,
    compute_activation_maps,
    find_live_units,
    has_parts,
    require_part_head,
)
from vitrail.explain.boxes import find_boxes
from vitrail.runs.deployed import DeployedModel


@dataclass(frozen=True)
class Region:
    """A suspected place in the images of one class.

    `boxes` [N, 4] has one box an image; None for what is no place but the color of the whole.
    `sharp` says that the pixels there stand out as those of things that were added do.
    """

    kind: Literal["place", "anywhere", "color", "random"]
    boxes: Tensor | None = None
    sharp: bool = False

    def paste_into(self, images: Tensor, donors: Tensor, pool: Tensor) -> Tensor:
        """Images with this region of their donors put in; `pool` are all donors of the class."""
        if self.boxes is not None:
            return swap(images, donors, self.boxes.repeat_interleave(len(images) // len(pool), 0))
        return match_colors(images, pool)


def locate_suspected_region(view: SiteView, label: int, unit: Unit, donors: Tensor) -> Region:
    """The region a unit names, in each of some of the class's images, fitted at full resolution.

    What is image-wide or anywhere may still be a mark at one place: where the class's pixels
    stand out sharply at one, that is it.
    """
    height, width = donors.shape[2:]
    tight = find_tight_place(
        view.images[view.labels == label], view.images[view.labels != label], unit.box
    )
    if tight is not None and (unit.box is not None or tight.is_mark):
        boxes = torch.tensor([tight.box]).repeat(len(donors), 1)
        return Region("place", boxes, tight.is_mark)
    if unit.box is not None:
        x0, y0, x1, y1 = unit.box
        box = [int(x0 * width), int(y0 * height), round(x1 * width), round(y1 * height)]
        return Region("place", torch.tensor([box]).repeat(len(donors), 1))
    if unit.kind == "image-wide":
        return Region("color")
    return Region("anywhere", _locate_shared_patch(view, label, donors))


def _locate_shared_patch(view: SiteView, label: int, donors: Tensor) -> Tensor:
    """Where in each image the patch is that the class's images share and others lack."""
    others = view.pixels[torch.from_numpy(np.flatnonzero(view.labels != label))[: len(donors)]]
    seen = view.compute_maps(torch.cat([donors, others]))
    of_class = torch.arange(len(seen)) < len(donors)
    at = locate_class_patch(seen.flatten(2), of_class)[: len(donors)]
    rows, columns = seen.shape[2:]
    height, width = donors.shape[2:]
    x, y = (at % columns + 0.5) / columns * width, (at // columns + 0.5) / rows * height
    wide, high = 0.75 * width / columns, 0.75 * height / rows
    boxes = torch.stack([x - wide, y - high, x + wide, y + high], 1).round()
    limit = torch.tensor([width, height, width, height])
    return torch.minimum(boxes.clamp_min(0), limit).to(torch.int64)


def find_strongest_unit(
    model: DeployedModel, z: Tensor, label: int, size: tuple[int, int]
) -> tuple[int, Tensor] | None:
    """The unit of a class that is most active in its images, with its box in each of them."""
    if not has_parts(model):
        return None
    head = require_part_head(model)
    units = torch.nonzero((head.owner == label) & find_live_units(model, z))[:, 0]
    if not len(units):
        return None
    seen = compute_activation_maps(model, z)[:, units]
    at = int(seen.flatten(2).amax(2).mean(0).argmax())
    return int(units[at]), find_boxes(seen[:, at], *size)


def draw_random_regions(
    like: Tensor, size: tuple[int, int], count: int, draw: np.random.Generator
) -> list[Region]:
    """Boxes of the same sizes anywhere in the images: what a region without meaning does."""
    height, width = size
    wide, high = (like[:, 2] - like[:, 0]).numpy(), (like[:, 3] - like[:, 1]).numpy()
    regions = []
    for _ in range(count):
        x0 = draw.integers(0, np.maximum(1, width - wide + 1))
        y0 = draw.integers(0, np.maximum(1, height - high + 1))
        corners = np.stack([x0, y0, x0 + wide, y0 + high], axis=1)
        regions.append(Region("random", torch.from_numpy(corners)))
    return regions
