"""Direct matching: does a shared image find its original, and does an original find its copy?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.attack.attack import ATTACKS
from vitrail.attack.budget import Job
from vitrail.attack.membership import judged
from vitrail.attack.originals import Originals
from vitrail.attack.shared import SharedTable
from vitrail.attack.spoils import Matching, SharedAttack, Spoils

Norm = Callable[[Tensor, Tensor], Tensor]  # shared [N, D], candidates [K, D] -> [N, K]


def _angle(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine: blind to how bright an image is and to how much of it is zero."""
    return 1 - F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def _masked(a: Tensor, b: Tensor) -> Tensor:
    """Each pixel was either kept or zeroed, whichever suits the candidate better: the distance of
    the most likely mask under Gaussian noise."""
    rows = [torch.minimum(one.square(), (one - b).square()).sum(1).sqrt() for one in a]
    return torch.stack(rows)


NORMS: dict[str, Norm] = {
    "l2": torch.cdist,
    "l1": lambda a, b: torch.cdist(a, b, p=1.0),
    "max": lambda a, b: torch.cdist(a, b, p=float("inf")),
    "angle": _angle,
    "masked": _masked,
}
ALIKE = "l2, treated alike"


def identified(shared: Tensor, candidates: Tensor, norm: Norm) -> float:
    """The share of shared images whose nearest candidate is that of their own number."""
    if not len(shared):
        return 0.0
    gaps = norm(_flat(shared), _flat(candidates))
    return float((gaps.argmin(1) == torch.arange(len(shared))).double().mean())


def copies(shared: Tensor, candidates: Tensor, norm: Norm) -> Tensor:
    """For each candidate minus the distance to the nearest shared image: high for members."""
    return -norm(_flat(shared), _flat(candidates)).amin(0)


def _flat(images: Tensor) -> Tensor:
    return images.flatten(1).double()


def _ways(
    table: SharedTable, truth: Originals, job: Job
) -> Iterator[tuple[str, Tensor, Tensor, Norm]]:
    """Names, shared images (the mean over views), candidates and distances.

    The candidates begin with the originals. An attacker who holds them can also put them through
    the sites' own phase first.
    """
    shared, pool = truth.shared.mean(0), torch.cat([truth.images, truth.others])
    for name, norm in NORMS.items():
        yield name, shared, pool, norm
    pixels = (pool * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    yield ALIKE, shared, table.imitate(pixels, job.key.at("alike")).mean(0), NORMS["l2"]


@ATTACKS.register("match")
class Match(SharedAttack):
    """The nearest original of each shared image, by several distances."""

    summary = "does a shared image find its original among a site's images and others?"

    def look(self, table: SharedTable, truth: Originals, job: Job) -> Spoils:
        """The share that does, for each distance."""
        found = (
            Matching(name, len(shared), len(pool), identified(shared, pool, norm))
            for name, shared, pool, norm in _ways(table, truth, job)
        )
        return Spoils(matchings=tuple(found))


@ATTACKS.register("shared-membership")
class SharedMembership(SharedAttack):
    """Is an image that the attacker holds among those that were shared?"""

    summary = "is an image among those that were shared? AUC, and members found at 1 % alarms"

    def look(self, table: SharedTable, truth: Originals, job: Job) -> Spoils:
        """By the distance to the nearest shared image: those that were shared against others."""
        member = torch.arange(len(truth.images) + len(truth.others)) < len(truth.images)
        whose = "all sites" if len(table.sets) > 1 else table.sets[0].site
        found = (
            judged(f"nearest shared image, {name}", whose, copies(shared, pool, norm), member)
            for name, shared, pool, norm in _ways(table, truth, job)
        )
        return Spoils(members=tuple(found))
