"""The training patches a site's prototypes stand for: its own images, never anybody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vitrail.engine.deployed import Deployed
from vitrail.engine.federation import Federation
from vitrail.engine.loaded import Run, Which
from vitrail.engine.reference import images_of
from vitrail.errors import VitrailError
from vitrail.explain.evidence import Box, box_of
from vitrail.local.push import DISTANCE, ROW
from vitrail.models.pieces import part_head

ELSEWHERE = "seen at other sites only: not shown"


@dataclass(frozen=True)
class Patch:
    """The patch nearest to a prototype: the training image, the box in it, the distance."""

    unit: int
    row: int
    image: str  # its name
    pixels: npt.NDArray[np.uint8]  # [H, W, C]
    box: Box
    distance: float


Find = Callable[[int], Patch | None]


class Patches:
    """What a site can show; each patch is looked up when it is asked for.

    `grounded` are the prototypes it has a patch of, or None if unknown; `missing` is the sentence
    for those without a picture.
    """

    def __init__(
        self, missing: str, grounded: frozenset[int] | None = None, find: Find | None = None
    ) -> None:
        self.missing = missing
        self.grounded = grounded
        self._find = find
        self._known: dict[int, Patch | None] = {}

    def get(self, unit: int | None) -> Patch | None:
        """The patch of a unit, if there is one to show."""
        if unit is None or self._find is None:
            return None
        if unit not in self._known:
            self._known[unit] = self._find(unit)
        return self._known[unit]

    def sentence(self, unit: int | None) -> str:
        """Why there is no picture of a unit."""
        return "stands for no patch" if unit is None else self.missing


def patches_of(run: Run, site: str | None, which: Which, model: Deployed) -> Patches:
    """The patches of a model's prototypes among the images of one site."""
    if site is None:
        return Patches("no site was named: not shown")
    own = run.own(site, "local" if which == "local" else "personal")
    if ROW not in own or len(own[ROW]) != len(part_head(model.network).owner):
        return Patches("no training patch was looked up for it")
    if which == "global" and not _same(model, run.model(site, "personal")):
        return Patches("the site's patches belong to its own model: not shown")
    rows = own[ROW].tolist()
    grounded = frozenset(unit for unit, row in enumerate(rows) if row >= 0)
    try:
        federation = images_of(run)
    except (VitrailError, OSError) as err:
        return Patches(f"the images of this run cannot be read here ({err})", grounded)
    find = _finder(model, federation, site, rows, own[DISTANCE].tolist())
    return Patches(ELSEWHERE, grounded, find)


def _same(one: Deployed, other: Deployed) -> bool:
    """Whether two models look for the same: all tensors equal but the mask of what is in use."""
    skipped = {f"head.{name}" for name in one.network.head.statistics}
    a, b = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a if name not in skipped)


def _finder(
    model: Deployed, federation: Federation, site: str, rows: list[int], distances: list[float]
) -> Find:
    held = federation.sites[site]
    mine = set(held.train.tolist()) | (set() if held.push is None else set(held.push.tolist()))
    head = part_head(model.network)

    @torch.no_grad()
    def find(unit: int) -> Patch | None:
        row = rows[unit]
        if row not in mine:  # nothing else is shown, whatever a file says
            return None
        pixels = np.array(federation.images.images[row])
        maps = head.maps(features(model, pixels))[0]
        box = box_of(maps[unit], (pixels.shape[0], pixels.shape[1]))
        name = str(federation.images.names[row])
        return Patch(unit, row, name, pixels, box, distances[unit])

    return find


def features(model: Deployed, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """What the head sees of one image [H, W, C]."""
    x = normalized(model, pixels)
    return model.network.features(model.network.prefix(x))


def normalized(model: Deployed, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """One image [H, W, C] as the network takes it, [1, C, H, W]."""
    x = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None].to(torch.float32) / 255
    return (x - model.shift) / model.scale
