"""Where a shortcut could be: the places a model's strongest units look at, the frame, the color."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.change import matched, swap
from vitrail.audit.contrast import Contrast
from vitrail.audit.desk import Desk, maps, parts
from vitrail.audit.separability import places
from vitrail.engine.deployed import Deployed
from vitrail.explain.boxes import boxes

FRAME = 0.08  # its width, as a share of the shorter side
_APART = 0.1  # units that look at the same place, up to this share of the side, count once


@dataclass(frozen=True)
class Region:
    """A suspected place in the images of one class.

    `boxes` [N, 4] has one box an image; None for what is no place: the whole frame or the color.
    """

    kind: Literal["place", "anywhere", "local", "shared", "frame", "color", "random"]
    boxes: Tensor | None = None
    unit: int | None = None

    @property
    def name(self) -> str:
        """How tables call it."""
        return self.kind if self.unit is None else f"{self.kind} unit {self.unit}"

    def into(self, images: Tensor, donors: Tensor, pool: Tensor) -> Tensor:
        """Images with this region of their donors put in; `pool` are all donors of the class."""
        if self.boxes is not None:
            return swap(images, donors, self.boxes.repeat_interleave(len(images) // len(pool), 0))
        if self.kind == "frame":
            return torch.where(ring(images), donors, images)
        return matched(images, pool)


def ring(images: Tensor, share: float = FRAME) -> Tensor:
    """Which pixels belong to the frame, [1, 1, H, W] of bool."""
    height, width = images.shape[2:]
    edge = max(1, round(share * min(height, width)))
    outer = torch.ones(1, 1, height, width, dtype=torch.bool)
    outer[:, :, edge : height - edge, edge : width - edge] = False
    return outer


def suspected(desk: Desk, contrast: Contrast, donors: Tensor) -> Region:
    """The region a contrast names, in each of some of the class's images."""
    height, width = donors.shape[2:]
    if contrast.place is not None and contrast.reach is not None:
        (x, y), (wide, high) = contrast.place, contrast.reach
        box = [
            round(max(0.0, x - wide / 2) * width),
            round(max(0.0, y - high / 2) * height),
            round(min(1.0, x + wide / 2) * width),
            round(min(1.0, y + high / 2) * height),
        ]
        return Region("place", torch.tensor([box]).repeat(len(donors), 1))
    if contrast.kind == "image-wide":
        return Region("color")
    return Region("anywhere", _alike(desk, contrast.label, donors))


def _alike(desk: Desk, label: int, donors: Tensor) -> Tensor:
    """Where in each image the patch is that the class's images share and others lack."""
    others = desk.pixels[torch.from_numpy(np.flatnonzero(desk.labels != label))[: len(donors)]]
    maps = desk.maps(torch.cat([donors, others]))
    own = torch.arange(len(maps)) < len(donors)
    at = places(maps.flatten(2), own)[: len(donors)]
    rows, columns = maps.shape[2:]
    height, width = donors.shape[2:]
    x, y = (at % columns + 0.5) / columns * width, (at // columns + 0.5) / rows * height
    wide, high = 0.75 * width / columns, 0.75 * height / rows
    found = torch.stack([x - wide, y - high, x + wide, y + high], 1).round()
    limit = torch.tensor([width, height, width, height])
    return torch.minimum(found.clamp_min(0), limit).to(torch.int64)


def candidates(desk: Desk, donors: Tensor, label: int, most: int = 2) -> list[Region]:
    """The regions to try for one class: of the local model, of the shared one, frame and color."""
    z = desk.begin(donors)
    size = (donors.shape[2], donors.shape[3])
    found = [Region("local", b, u) for u, b in strongest(desk.local, z, label, size, most)]
    found += [Region("shared", b, u) for u, b in strongest(desk.shared, z, label, size, 1)]
    return [*found, Region("frame"), Region("color")]


def strongest(
    model: Deployed, z: Tensor, label: int, size: tuple[int, int], most: int
) -> list[tuple[int, Tensor]]:
    """The units of a class that contribute most to its logit, with their box in each image.

    Units that look at the same place as a stronger one are passed over.
    """
    head = parts(model)
    units = torch.nonzero((head.owner == label) & head.alive())[:, 0]
    if not len(units):
        return []
    seen = maps(model, z)[:, units]
    order = seen.flatten(2).amax(2).mean(0).argsort(descending=True)
    found: list[tuple[int, Tensor]] = []
    centers: list[Tensor] = []
    for at in order.tolist():
        box = boxes(seen[:, at], *size)
        center = (box[:, :2] + box[:, 2:]) / 2
        if all(float((center - c).abs().mean()) > _APART * min(size) for c in centers):
            found.append((int(units[at]), box))
            centers.append(center)
        if len(found) == most:
            break
    return found


def at_random(
    like: Tensor, size: tuple[int, int], count: int, draw: np.random.Generator
) -> list[Region]:
    """Boxes of the same sizes anywhere in the images: what a region without meaning does."""
    height, width = size
    wide, high = (like[:, 2] - like[:, 0]).numpy(), (like[:, 3] - like[:, 1]).numpy()
    found = []
    for _ in range(count):
        x0 = draw.integers(0, np.maximum(1, width - wide + 1))
        y0 = draw.integers(0, np.maximum(1, height - high + 1))
        corners = np.stack([x0, y0, x0 + wide, y0 + high], axis=1)
        found.append(Region("random", torch.from_numpy(corners)))
    return found
