"""Push: every prototype becomes, or is shown by, the nearest patch among images of its class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.local.inputs import Inputs, Rows
from vitrail.local.phases import Phase, Sees
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.network import Network
from vitrail.models.pieces import head_as
from vitrail.models.protopnet import ProtoHead

_CHUNK = 128  # images at once; with 256 it was slower
ROW, PLACE, DISTANCE = "push/row", "push/place", "push/distance"


@dataclass(frozen=True)
class Grounding:
    """For each prototype the nearest patch of its class: which image, where, how far.

    `row` is -1 for a prototype whose class has no image here: it is not grounded.
    """

    row: Tensor  # [m], int64
    place: Tensor  # [m], int64, the position in the map, row by row
    distance: Tensor  # [m], squared
    vector: Tensor  # [m, D], the patch; the old prototype where there is none

    @property
    def found(self) -> Tensor:
        """Which prototypes have a patch, [m] of bool."""
        return self.row >= 0


@torch.no_grad()
def ground(network: Network, inputs: Inputs, rows: Rows, chunk: int = _CHUNK) -> Grounding:
    """Find the nearest patch of every prototype among images of its own class.

    Each image meets the prototypes of its own class only, all images of a chunk at once; of
    equal patches the first in row order wins.
    """
    head = head_of(network)
    network.eval()
    count, device = len(head.owner), head.vectors.device
    found = Grounding(
        row=torch.full((count,), -1, dtype=torch.int64, device=device),
        place=torch.zeros(count, dtype=torch.int64, device=device),
        distance=torch.full((count,), torch.inf, device=device),
        vector=head.vectors.detach().clone(),
    )
    units = head.owner.argsort(stable=True).view(len(head.weight), -1)  # [classes, per class]
    vectors = head.vectors[units]
    norms = vectors.square().sum(2)
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        labels = inputs.targets(part)
        x = inputs.plain(part)
        z = network.features(network.prefix(x) if inputs.features is None else x).flatten(2)
        nearest, place = _nearest(z, vectors.index_select(0, labels), norms[labels])
        _improve(found, units[labels], nearest, place, z, torch.from_numpy(part).to(device))
    return found


def _nearest(z: Tensor, vectors: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """How far the nearest of an image's patches [n, D, places] is from each vector of its class
    [n, u, D], and which patch it is; one that is not finite must not hide the others."""
    distances = torch.add(z.square().sum(1, keepdim=True), torch.bmm(vectors, z), alpha=-2)
    nearest, place = distances.nan_to_num_(torch.inf).min(2)
    return (nearest + norms).clamp_min_(0), place


def _improve(
    found: Grounding, mine: Tensor, nearest: Tensor, place: Tensor, z: Tensor, rows: Tensor
) -> None:
    """Take over what a chunk of images has that is nearer; `mine` [n, u] are their prototypes."""
    count, images = len(found.row), len(rows)
    best = torch.full_like(found.distance, torch.inf)
    best.scatter_reduce_(0, mine.flatten(), nearest.flatten(), "amin")
    at = torch.arange(images * mine.shape[1], device=rows.device).view_as(mine)
    at = torch.where(nearest == best[mine], at, at.numel())
    first = torch.full((count,), at.numel(), dtype=torch.int64, device=rows.device)
    first.scatter_reduce_(0, mine.flatten(), at.flatten(), "amin")
    units = torch.nonzero(best < found.distance)[:, 0]
    chosen = first[units]
    image, where = chosen // mine.shape[1], place.flatten()[chosen]
    found.distance[units] = best[units]
    found.row[units] = rows[image]
    found.place[units] = where
    found.vector[units] = z[image, :, where]


def head_of(network: Network) -> ProtoHead:
    """The prototypes of a network, or an error that names the key."""
    lack = ConfigError(
        "a push needs prototypes, and this model has none",
        where="method.model",
        hint='Use "protopnet".',
    )
    return head_as(network, ProtoHead, lack)


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
    def sees(self) -> Sees:
        """A push for pictures leaves the model alone."""
        return "data" if self.real else "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Search the site's push images."""
        del ctx
        rows = site.rows.train if site.rows.push is None else site.rows.push
        found = ground(site.model.network, site.inputs, rows)
        if self.real:
            head_of(site.model.network).vectors.data.copy_(found.vector)
        site.state[ROW] = found.row.cpu()
        site.state[PLACE] = found.place.cpu()
        site.state[DISTANCE] = found.distance.where(found.found, -1.0).cpu()
        return {"grounded": float(found.found.double().mean())}


def pictures_only(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """The same phases with every push for pictures: a real one copies patches into the model."""
    return tuple(replace(p, real=False) if isinstance(p, Push) else p for p in phases)
