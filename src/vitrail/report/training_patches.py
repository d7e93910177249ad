"""The training patches a site's prototypes stand for: its own images, never anybody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vitrail.engine.federation import Federation
from vitrail.errors import VitrailError
from vitrail.explain.dead_units import find_dead_units
from vitrail.explain.evidence import Box, find_box
from vitrail.local.phases.push import DISTANCE, ROW
from vitrail.models.heads.part_head import require_part_head
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import ModelKind, Run
from vitrail.runs.reopen import load_run_federation

ELSEWHERE = "seen at other sites only: not shown"


@dataclass(frozen=True)
class Patch:
    """The patch nearest to a unit: the training image, the box in it, the squared distance where
    units are compared by one."""

    unit: int
    row: int
    image: str  # its name
    pixels: npt.NDArray[np.uint8]  # [H, W, C]
    box: Box
    distance: float | None


_LOOKED_AT = 96  # images of a site that tell which prototypes are dead
PatchFinder = Callable[[int], Patch | None]


class Patches:
    """What a site can show; each patch is looked up when it is asked for.

    `grounded` are the prototypes it has a patch of, or None if unknown; `dead` those that are far
    from every patch, and so grounded on none; `missing` is the sentence for those without a
    picture.
    """

    def __init__(
        self,
        missing: str,
        grounded: frozenset[int] | None = None,
        find: PatchFinder | None = None,
        dead: frozenset[int] = frozenset(),
    ) -> None:
        self.missing = missing
        self.dead = dead
        self.grounded = None if grounded is None else grounded - dead
        self._find = find
        self._known: dict[int, Patch | None] = {}

    def get(self, unit: int | None) -> Patch | None:
        """The patch of a unit, if there is one to show."""
        if unit is None or self._find is None:
            return None
        if unit not in self._known:
            self._known[unit] = self._find(unit)
        return self._known[unit]

    def explain_missing(self, unit: int | None) -> str:
        """Why there is no picture of a unit."""
        return "stands for no patch" if unit is None else self.missing


def find_patches(run: Run, site: str | None, which: ModelKind, model: DeployedModel) -> Patches:
    """The patches of a model's prototypes among the images of one site."""
    if site is None:
        return Patches("no site was named: not shown")
    site_state = run.own(site, "local" if which == "local" else "personal")
    if ROW not in site_state or len(site_state[ROW]) != len(require_part_head(model.network).owner):
        return _look_up_patches(run, site, model)
    if which == "global" and not _is_same_model(model, run.model(site, "personal")):
        return Patches("the site's patches belong to its own model: not shown")
    rows = site_state[ROW].tolist()
    grounded = frozenset(unit for unit, row in enumerate(rows) if row >= 0)
    try:
        federation = load_run_federation(run)
    except (VitrailError, OSError) as err:
        return Patches(f"the images of this run cannot be read here ({err})", grounded)
    find = _make_finder(model, federation, site, rows, site_state[DISTANCE].tolist())
    return Patches(ELSEWHERE, grounded, find, _find_dead(model, federation, site))


def _look_up_patches(run: Run, site: str, model: DeployedModel) -> Patches:
    """Patches of a model whose units were never put onto any: for each unit the site's own training
    image of its class in which it is most active. What the class looks like at this site."""
    try:
        federation = load_run_federation(run)
    except (VitrailError, OSError) as err:
        return Patches(f"the images of this run cannot be read here ({err})")
    if site not in federation.sites:
        return Patches("the site's images are not here: not shown")
    rows = _find_most_active(model, federation, site)
    grounded = frozenset(unit for unit, row in enumerate(rows) if row >= 0)
    find = _make_finder(model, federation, site, rows, None)
    return Patches(ELSEWHERE, grounded, find, _find_dead(model, federation, site))


@torch.no_grad()
def _find_dead(model: DeployedModel, federation: Federation, site: str) -> frozenset[int]:
    """The prototypes that are far from every patch of some of the site's training images."""
    rows = federation.sites[site].train if site in federation.sites else np.empty(0, np.int64)
    if len(rows) < 2:
        return frozenset()
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _LOOKED_AT)).astype(int))]
    z = torch.cat(
        [compute_features(model, np.array(federation.images.images[row])) for row in chosen]
    )
    dead = find_dead_units(require_part_head(model.network), z)
    return frozenset(torch.nonzero(dead)[:, 0].tolist())


@torch.no_grad()
def _find_most_active(model: DeployedModel, federation: Federation, site: str) -> list[int]:
    """For each unit the row of the site's training image of its class that excites it most; -1
    for a class that the site has no image of."""
    head = require_part_head(model.network)
    best = torch.full((len(head.owner),), -torch.inf)
    rows = [-1] * len(head.owner)
    for row in federation.sites[site].train.tolist():
        units = torch.nonzero(head.owner == int(federation.images.labels[row]))[:, 0]
        maps = head.maps(compute_features(model, np.array(federation.images.images[row])))[0]
        peaks = maps[units].flatten(1).amax(1)
        for unit, peak in zip(units.tolist(), peaks, strict=True):
            if peak > best[unit]:
                best[unit], rows[unit] = peak, row
    return rows


def _is_same_model(model: DeployedModel, other: DeployedModel) -> bool:
    """Whether two models look for the same: all tensors equal but the mask of what is in use."""
    skipped = {f"head.{name}" for name in model.network.head.statistics}
    a, b = model.network.state_dict(), other.network.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a if name not in skipped)


def _make_finder(
    model: DeployedModel,
    federation: Federation,
    site: str,
    rows: list[int],
    distances: list[float] | None,
) -> PatchFinder:
    site_rows = federation.sites[site]
    allowed = set(site_rows.train.tolist()) | (
        set() if site_rows.push is None else set(site_rows.push.tolist())
    )
    head = require_part_head(model.network)

    @torch.no_grad()
    def find(unit: int) -> Patch | None:
        row = rows[unit]
        if row not in allowed:  # nothing else is shown, whatever a file says
            return None
        pixels = np.array(federation.images.images[row])
        maps = head.maps(compute_features(model, pixels))[0]
        box = find_box(maps[unit], (pixels.shape[0], pixels.shape[1]))
        name = str(federation.images.names[row])
        return Patch(unit, row, name, pixels, box, None if distances is None else distances[unit])

    return find


def compute_features(model: DeployedModel, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """What the head sees of one image [H, W, C]."""
    x = normalize_image(model, pixels)
    return model.network.features(model.network.prefix(x))


def normalize_image(model: DeployedModel, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """One image [H, W, C] as the network takes it, [1, C, H, W]."""
    x = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None].to(torch.float32) / 255
    return (x - model.shift) / model.scale
