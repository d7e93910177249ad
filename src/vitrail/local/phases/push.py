"""Push: every prototype becomes, or is shown by, the nearest patch among images of its class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.local.inputs import Inputs, Rows
from vitrail.local.phases.phase import DataAccess, Phase
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.heads.part_head import require_head
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.network import Network

_CHUNK = 128  # images at once; with 256 it was slower
ROW, PLACE, DISTANCE = "push/row", "push/place", "push/distance"


@dataclass(frozen=True)
class NearestPatches:
    """For each prototype the nearest patch of its class: which image, where, how far.

    `row` is -1 for a prototype whose class has no image here: it is not grounded.
    """

    row: Tensor  # [m], int64
    place: Tensor  # [m], int64, the position in the map, row by row
    distance: Tensor  # [m], squared
    vector: Tensor  # [m, D], the patch; the old prototype where there is none

    @property
    def grounded(self) -> Tensor:
        """Which prototypes have a patch, [m] of bool."""
        return self.row >= 0


@torch.no_grad()
def find_nearest_patches(
    network: Network, inputs: Inputs, rows: Rows, chunk: int = _CHUNK
) -> NearestPatches:
    """Find the nearest patch of every prototype among images of its own class.

    Each image meets the prototypes of its own class only, all images of a chunk at once; of
    equal patches the first in row order wins.
    """
    head = get_prototype_head(network)
    network.eval()
    count, device = len(head.owner), head.vectors.device
    best = NearestPatches(
        row=torch.full((count,), -1, dtype=torch.int64, device=device),
        place=torch.zeros(count, dtype=torch.int64, device=device),
        distance=torch.full((count,), torch.inf, device=device),
        vector=head.vectors.detach().clone(),
    )
    units = head.owner.argsort(stable=True).view(len(head.weight), -1)  # [classes, per class]
    vectors = head.embed(head.vectors)[units]
    norms = vectors.square().sum(2)
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        labels = inputs.targets(part)
        x = inputs.plain(part)
        z = network.features(network.prefix(x) if inputs.features is None else x)
        z = head.embed(z).flatten(2)
        nearest, place = _measure_nearest(z, vectors.index_select(0, labels), norms[labels])
        _improve(best, units[labels], nearest, place, z, torch.from_numpy(part).to(device))
    return best


def _measure_nearest(z: Tensor, vectors: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """How far the nearest of an image's patches [n, D, places] is from each vector of its class
    [n, u, D], and which patch it is; one that is not finite must not hide the others."""
    distances = torch.add(z.square().sum(1, keepdim=True), torch.bmm(vectors, z), alpha=-2)
    nearest, place = distances.nan_to_num_(torch.inf).min(2)
    return (nearest + norms).clamp_min_(0), place


def _improve(
    best: NearestPatches,
    prototypes: Tensor,
    nearest: Tensor,
    place: Tensor,
    z: Tensor,
    rows: Tensor,
) -> None:
    """Take over what a chunk of images has that is nearer; `prototypes` [n, u] are their
    own ones."""
    count, images = len(best.row), len(rows)
    chunk_best = torch.full_like(best.distance, torch.inf)
    chunk_best.scatter_reduce_(0, prototypes.flatten(), nearest.flatten(), "amin")
    at = torch.arange(images * prototypes.shape[1], device=rows.device).view_as(prototypes)
    at = torch.where(nearest == chunk_best[prototypes], at, at.numel())
    first = torch.full((count,), at.numel(), dtype=torch.int64, device=rows.device)
    first.scatter_reduce_(0, prototypes.flatten(), at.flatten(), "amin")
    units = torch.nonzero(chunk_best < best.distance)[:, 0]
    chosen = first[units]
    image, where = chosen // prototypes.shape[1], place.flatten()[chosen]
    best.distance[units] = chunk_best[units]
    best.row[units] = rows[image]
    best.place[units] = where
    best.vector[units] = z[image, :, where]


def get_prototype_head(network: Network) -> ProtoHead:
    """The prototypes of a network, or an error that names the key."""
    lack = ConfigError(
        "a push needs prototypes, and this model has none",
        where="method.model",
        hint='Use "protopnet".',
    )
    return require_head(network, ProtoHead, lack)


@dataclass(frozen=True)
class Push:
    """Ground the prototypes on the site's own images; `real` overwrites them with the patches.

    What was found is kept in the site's state, so that explanations can show the patch a
    prototype stands for. A prototype without an image of its class stays as it was; its row
    and distance are -1.
    """

    real: bool = True
    name: str = "push"

    @property
    def sees(self) -> DataAccess:
        """A push for pictures leaves the model alone."""
        return "data" if self.real else "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Search the site's push images."""
        del ctx
        rows = site.rows.train if site.rows.push is None else site.rows.push
        nearest = find_nearest_patches(site.model.network, site.inputs, rows)
        if self.real:
            get_prototype_head(site.model.network).vectors.data.copy_(nearest.vector)
        site.state[ROW] = nearest.row.cpu()
        site.state[PLACE] = nearest.place.cpu()
        site.state[DISTANCE] = nearest.distance.where(nearest.grounded, -1.0).cpu()
        return {"grounded": float(nearest.grounded.double().mean())}


def replace_real_pushes(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """The same phases with every push for pictures: a real one copies patches into the model."""
    return tuple(replace(p, real=False) if isinstance(p, Push) else p for p in phases)
