"""What a released prototype or subspace gives away: the patch that explains it best.

A prototype of ProtoPNet is a point in the space of patches; once it was pushed it IS a patch of
somebody's image. A basis vector of TesNet is a direction, a subspace of FedGraSP a set of
directions. An attacker who has the model searches for an image whose best patch excites the
unit most, freely or among what a generator can make.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.budget import Job
from vitrail.attack.generator import LATENT, cached_generator
from vitrail.attack.ig import first_guess
from vitrail.attack.matching import total_variation
from vitrail.attack.membership import Membership, alike, auc, tpr_at
from vitrail.attack.public import public_images
from vitrail.attack.scene import Scene
from vitrail.attack.scores import psnr, ssim
from vitrail.attack.search import search
from vitrail.attack.truth import Truth
from vitrail.attack.victim import patches
from vitrail.config.schema import Count, Table
from vitrail.errors import RunError
from vitrail.models.network import Network
from vitrail.models.pieces import PartHead

UNITS = ("head.vectors", "head.frames")


@dataclass(frozen=True)
class PatchRow:
    """How near found patches come to the site's own patches, as means over the units.

    `psnr` and `ssim` compare the place where the found image excites the unit with the place of
    the site's images that does so most. `reached` is the found activation over the true one, for
    units that some patch of the site excites; None where none does.
    """

    name: str
    units: int
    psnr: float
    ssim: float
    reached: float | None
    iterations: int = 0

    def sentence(self) -> str:
        """All of it in words."""
        told = f"{self.name}: PSNR {self.psnr:.1f} dB, SSIM {self.ssim:.2f} over {self.units} units"
        if self.reached is None:
            return told
        return f"{told}, {self.reached:.2f} of the true patch's activation"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


class _Maps(nn.Module):
    """The activation of every unit at every position, from pixels as the network sees them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, units, h, w]."""
        head = self.network.head
        assert isinstance(head, PartHead)
        return head.maps(head.reduce(patches(self.network, x)))


def unit_maps(scene: Scene, site: int, x: Tensor) -> Tensor:
    """Maps of the units that one site released, on the model that was sent."""
    network = scene.network
    if not isinstance(network, Network) or not isinstance(network.head, PartHead):
        raise RunError(
            "this model has no prototypes",
            where="--attacks",
            hint="Attack a run of myth-gm, tesnet or fedgrasp; or use ig.",
        )
    turn = scene.turns[-1]
    told = {n: t[site] for n, t in turn.released.items() if n in turn.sent}
    if not any(name in told for name in UNITS):
        raise RunError("no prototype left a site in this round", where="--round")
    # What the site sent whole is used whole: its own body reads its own prototypes.
    named = {f"network.{n}": told.get(n, t) for n, t in turn.sent.items()}
    found: Tensor = functional_call(_Maps(network), named, (x,))
    return found


@torch.no_grad()
def true_patches(scene: Scene, site: int, truth: Truth, units: Tensor) -> tuple[Tensor, Tensor]:
    """For each unit the place of the site's images that excites it most, and how much."""
    maps = unit_maps(scene, site, scene.seen(truth.images))[:, units]
    values, at = maps.permute(1, 0, 2, 3).flatten(1).max(1)
    size = maps.shape[2] * maps.shape[3]
    cut = [crop(truth.images[int(a) // size], int(a) % size, maps.shape[2:]) for a in at]
    return torch.stack(cut), values


@torch.no_grad()
def parts_members(scene: Scene, site: int, truth: Truth) -> Membership | None:
    """Is an image that the attacker holds one of the site's? By how much it excites any unit.

    A pushed prototype is a patch of an image: that image excites it fully, and no other does.
    Others are of the same classes, as many of each, so that a site's classes do not tell; None
    where nobody else has an image of them.
    """

    def most(images: Tensor) -> Tensor:
        some = [images[at : at + 64] for at in range(0, len(images), 64)]
        return torch.cat([unit_maps(scene, site, scene.seen(x)).flatten(1).amax(1) for x in some])

    members, rest = alike(truth.labels, truth.other_labels)
    if not len(members):
        return None
    own, others = most(truth.images[members]), most(truth.others[rest])
    return Membership(
        "most excited part", scene.sites[site], len(own), len(others), auc(own, others),
        tpr_at(own, others),
    )  # fmt: skip


def crop(image: Tensor, at: int, grid: torch.Size | tuple[int, int]) -> Tensor:
    """The square of pixels [C, s, s] around a position of the map, three cells wide if it fits."""
    height, width = image.shape[-2:]
    row, column = divmod(at, grid[1])
    side = min(height, width, max(8, 3 * height // grid[0]))
    top = round((row + 0.5) * height / grid[0] - side / 2)
    left = round((column + 0.5) * width / grid[1] - side / 2)
    top, left = min(max(0, top), height - side), min(max(0, left), width - side)
    return image[:, top : top + side, left : left + side]


def invert_units(
    scene: Scene,
    site: int,
    units: Tensor,
    job: Job,
    iterations: int = 300,
    tv: float = 1e-2,
    generator: nn.Module | None = None,
) -> tuple[Tensor, Tensor, int]:
    """For each unit an image that excites it most: crops [u, C, s, s], activations, iterations."""
    count = len(units)
    rows = torch.arange(count)
    low, high = scene.box

    def pixels(x: Tensor) -> Tensor:
        return x[:, 0] if generator is None else scene.seen(generator(x))

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        image = pixels(x)
        maps = unit_maps(scene, site, image)[rows, units].flatten(1)
        best = maps.max(1).values
        return -best + tv * total_variation(image[:, None]), -best

    if generator is None:
        start = first_guess(scene, [0] * count, job, 0.3)[:, :1]
        found = search(
            start, objective, lambda x: torch.minimum(torch.maximum(x, low), high), job,
            iterations, 0.05,
        )  # fmt: skip
    else:
        start = torch.randn((count, LATENT), generator=job.key.at("z").torch())
        found = search(
            start, objective, lambda z: z.clamp(-4, 4), job, iterations, 0.05, signed=False
        )
    with torch.no_grad():
        image = pixels(found.x)
        maps = unit_maps(scene, site, image)[rows, units]
        values, at = maps.flatten(1).max(1)
        shown = scene.pixels(image)
        cut = [crop(one, int(a), maps.shape[1:]) for one, a in zip(shown, at, strict=True)]
    return torch.stack(cut), values, found.iterations


def patch_rows(
    scene: Scene,
    site: int,
    truth: Truth,
    job: Job,
    count: int = 8,
    iterations: int = 300,
    generator: nn.Module | None = None,
) -> list[PatchRow]:
    """References and attacks for the first units a site released, each against its own patch."""
    head = scene.network.head if isinstance(scene.network, Network) else None
    total = int(head.owner.numel()) if isinstance(head, PartHead) else 0
    step = max(1, total // count)
    units = torch.arange(0, max(total, 1), step)[:count]
    own, reached = true_patches(scene, site, truth, units)
    side = own.shape[-1]
    others = truth.others if len(truth.others) else truth.images
    top = (others.shape[-1] - side) // 2
    middle = others[:, :, top : top + side, top : top + side]
    random = middle[torch.arange(len(units)) % len(middle)]
    mean = middle.mean(0, keepdim=True).expand_as(own).contiguous()
    rows = [_row("random patch", random, own), _row("mean patch", mean, own)]
    tried = [("patch search", None)] + (
        [("patch search, generator", generator)] if generator else []
    )
    for name, prior in tried:
        made, value, done = invert_units(
            scene, site, units, job.part(name.replace(", ", "-").replace(" ", "-")), iterations,
            generator=prior,
        )  # fmt: skip
        rows.append(_row(name, made, own, _share(value, reached), done))
    return rows


def _share(found: Tensor, true: Tensor) -> float | None:
    """The mean ratio, over units that some patch of the site excites at all."""
    excited = true > 0
    return float((found / true)[excited].mean()) if bool(excited.any()) else None


class PrototypeOptions(Table):
    """`[attack.prototypes]`."""

    units: Count = 8
    """How many prototypes or subspaces of a site, spread over all of them."""
    iterations: Count = 300
    """Steps of each search."""
    public: str | None = None
    """Public images to train the small generator on; without, the search is free only."""
    generator_steps: Count = 2000
    """Training steps of the small generator; it is kept in the cache."""


@ATTACKS.register("prototypes")
class PatchSearch(Attack):
    """The patch that best explains each released prototype or subspace."""

    summary = "the patch that best explains each released prototype or subspace"
    kind = "patches"
    Options = PrototypeOptions

    def rows(self, scene: Scene, site: int, truth: Truth, job: Job) -> list[PatchRow]:
        """References and searches, without and (with public images) with a generator."""
        generator = None
        if self.options.public is not None:
            images = public_images(Path(self.options.public), scene.shape)
            generator = cached_generator(images, self.options.generator_steps, job.tell)
        return patch_rows(
            scene, site, truth, job, self.options.units, self.options.iterations, generator
        )


def _row(
    name: str, found: Tensor, own: Tensor, reached: float | None = None, done: int = 0
) -> PatchRow:
    errors = (found.double() - own.double()).square().flatten(1).mean(1)
    return PatchRow(
        name=name,
        units=len(own),
        psnr=float(psnr(errors).mean()),
        ssim=float(ssim(found, own).mean()),
        reached=reached,
        iterations=done,
    )
