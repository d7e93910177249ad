"""What a released prototype or subspace gives away: the patch that explains it best.

A prototype of ProtoPNet is a point in the space of patches; once it was pushed it IS a patch of
somebody's image. A basis vector of TesNet is a direction, a subspace of FedGraSP a set of
directions. An attacker who has the model searches for an image whose best patch excites the
unit most, freely or among what a generator can make.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.findings import Findings, MembershipResult, PatchRow
from vitrail.attack.ground_truth import GroundTruth
from vitrail.attack.image_scores import psnr, ssim
from vitrail.attack.inversion.gradient_matching import total_variation
from vitrail.attack.inversion.image_prior import LATENT, load_or_train_generator
from vitrail.attack.inversion.inversion_attack import ask_about_scene
from vitrail.attack.inversion.inverting_gradients import draw_first_guess
from vitrail.attack.inversion.search import search
from vitrail.attack.inversion.victim import compute_patches
from vitrail.attack.job import Job
from vitrail.attack.membership.lira import balance_classes, compare_scores
from vitrail.attack.public_images import read_public_images
from vitrail.attack.scene import Scene
from vitrail.attack.true_images import Truth
from vitrail.attack.view import View
from vitrail.config.schema import Count, Section
from vitrail.errors import RunError
from vitrail.models.heads.part_head import PartHead
from vitrail.models.network import Network

UNITS = ("head.vectors", "head.frames")


class _Maps(nn.Module):
    """The activation of every unit at every position, from pixels as the network sees them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, units, h, w]."""
        head = self.network.head
        assert isinstance(head, PartHead)
        return head.maps(head.reduce(compute_patches(self.network, x)))


def compute_unit_maps(scene: Scene, site: int, x: Tensor) -> Tensor:
    """Maps of the units that one site released, on the model that was sent."""
    network = scene.network
    if not isinstance(network, Network) or not isinstance(network.head, PartHead):
        raise RunError(
            "this model has no prototypes",
            where="--attacks",
            hint="Attack a run of myth-gm, tesnet or fedgrasp; or use ig.",
        )
    turn = scene.turns[-1]
    released = {n: t[site] for n, t in turn.released.items() if n in turn.sent}
    if not any(name in released for name in UNITS):
        raise RunError("no prototype left a site in this round", where="--round")
    # What the site sent whole is used whole: its own body reads its own prototypes.
    named = {f"network.{n}": released.get(n, t) for n, t in turn.sent.items()}
    maps: Tensor = functional_call(_Maps(network), named, (x,))
    return maps


@torch.no_grad()
def find_true_patches(
    scene: Scene, site: int, truth: Truth, units: Tensor
) -> tuple[Tensor, Tensor]:
    """For each unit the place of the site's images that excites it most, and how much."""
    maps = compute_unit_maps(scene, site, scene.seen(truth.images))[:, units]
    values, at = maps.permute(1, 0, 2, 3).flatten(1).max(1)
    size = maps.shape[2] * maps.shape[3]
    cut = [crop(truth.images[int(a) // size], int(a) % size, maps.shape[2:]) for a in at]
    return torch.stack(cut), values


@torch.no_grad()
def score_parts_membership(scene: Scene, site: int, truth: Truth) -> MembershipResult | None:
    """Is an image that the attacker holds one of the site's? By how much it excites any unit.

    A pushed prototype is a patch of an image: that image excites it fully, and no other does.
    Others are of the same classes, as many of each, so that a site's classes do not tell; None
    where nobody else has an image of them.
    """

    def most(images: Tensor) -> Tensor:
        some = [images[at : at + 64] for at in range(0, len(images), 64)]
        return torch.cat(
            [compute_unit_maps(scene, site, scene.seen(x)).flatten(1).amax(1) for x in some]
        )

    members, rest = balance_classes(truth.labels, truth.other_labels)
    if not len(members):
        return None
    inside, outside = most(truth.images[members]), most(truth.others[rest])
    return compare_scores("most excited part", scene.sites[site], inside, outside)


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
        maps = compute_unit_maps(scene, site, image)[rows, units].flatten(1)
        best = maps.max(1).values
        return -best + tv * total_variation(image[:, None]), -best

    if generator is None:
        start = draw_first_guess(scene, [0] * count, job, 0.3)[:, :1]
        result = search(
            start, objective, lambda x: torch.minimum(torch.maximum(x, low), high), job,
            iterations, 0.05,
        )  # fmt: skip
    else:
        start = torch.randn((count, LATENT), generator=job.key.at("z").torch())
        result = search(
            start, objective, lambda z: z.clamp(-4, 4), job, iterations, 0.05, signed=False
        )
    with torch.no_grad():
        image = pixels(result.x)
        maps = compute_unit_maps(scene, site, image)[rows, units]
        values, at = maps.flatten(1).max(1)
        shown = scene.pixels(image)
        cut = [crop(one, int(a), maps.shape[1:]) for one, a in zip(shown, at, strict=True)]
    return torch.stack(cut), values, result.iterations


def make_patch_rows(
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
    true_patches, reached = find_true_patches(scene, site, truth, units)
    side = true_patches.shape[-1]
    others = truth.others if len(truth.others) else truth.images
    top = (others.shape[-1] - side) // 2
    middle = others[:, :, top : top + side, top : top + side]
    random = middle[torch.arange(len(units)) % len(middle)]
    mean = middle.mean(0, keepdim=True).expand_as(true_patches).contiguous()
    rows = [
        _make_row("random patch", random, true_patches),
        _make_row("mean patch", mean, true_patches),
    ]
    tried = [("patch search", None)] + (
        [("patch search, generator", generator)] if generator else []
    )
    for name, prior in tried:
        patches, value, done = invert_units(
            scene, site, units, job.part(name.replace(", ", "-").replace(" ", "-")), iterations,
            generator=prior,
        )  # fmt: skip
        rows.append(
            _make_row(name, patches, true_patches, _compute_mean_ratio(value, reached), done)
        )
    return rows


def _compute_mean_ratio(recovered: Tensor, true: Tensor) -> float | None:
    """The mean ratio, over units that some patch of the site excites at all."""
    excited = true > 0
    return float((recovered / true)[excited].mean()) if bool(excited.any()) else None


class PrototypeOptions(Section):
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
    needs = "parts"
    Options = PrototypeOptions

    def run(self, view: View, job: Job) -> Findings:
        """Site by site the patches, then whose images excite the parts."""
        patches: dict[str, list[PatchRow]] = {}
        for scene in view.scenes():
            for at, site in enumerate(scene.sites):
                search_job = ask_about_scene(self, scene.take([at]), job)
                truth = job.truth.of_site(site)
                patches[site] = make_patch_rows(
                    scene, at, truth, search_job, self.options.units, self.options.iterations,
                    self._load_generator(scene, search_job),
                )  # fmt: skip
        return Findings(patches=patches, members=infer_members_by_parts(view, job.truth))

    def _load_generator(self, scene: Scene, job: Job) -> nn.Module | None:
        """The small generator of the public images; None without any."""
        if self.options.public is None:
            return None
        images = read_public_images(Path(self.options.public), scene.shape)
        return load_or_train_generator(images, self.options.generator_steps, job.tell)


def infer_members_by_parts(view: View, truth: GroundTruth) -> tuple[MembershipResult, ...]:
    """What the parts that each site sent tell of who was trained on, without any search."""
    results = (
        score_parts_membership(scene, at, truth.of_site(site))
        for scene in view.scenes()
        for at, site in enumerate(scene.sites)
    )
    return tuple(result for result in results if result is not None)


def _make_row(
    name: str, patches: Tensor, true_patches: Tensor, reached: float | None = None, done: int = 0
) -> PatchRow:
    errors = (patches.double() - true_patches.double()).square().flatten(1).mean(1)
    return PatchRow(
        name=name,
        units=len(true_patches),
        psnr=float(psnr(errors).mean()),
        ssim=float(ssim(patches, true_patches).mean()),
        reached=reached,
        iterations=done,
    )
