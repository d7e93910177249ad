"""Direct matching: does a shared image find its original, and does an original find its copy?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.findings import Findings, Matching
from vitrail.attack.job import Job
from vitrail.attack.membership.lira import score_membership
from vitrail.attack.shared_images.originals import Originals
from vitrail.attack.shared_images.shared_table import SharedTable
from vitrail.attack.view import View

Norm = Callable[[Tensor, Tensor], Tensor]  # shared [N, D], candidates [K, D] -> [N, K]


def _angular_distance(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine: blind to how bright an image is and to how much of it is zero."""
    return 1 - F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def _masked_distance(a: Tensor, b: Tensor) -> Tensor:
    """Each pixel was either kept or zeroed, whichever suits the candidate better: the distance of
    the most likely mask under Gaussian noise."""
    rows = [torch.minimum(one.square(), (one - b).square()).sum(1).sqrt() for one in a]
    return torch.stack(rows)


NORMS: dict[str, Norm] = {
    "l2": torch.cdist,
    "l1": lambda a, b: torch.cdist(a, b, p=1.0),
    "max": lambda a, b: torch.cdist(a, b, p=float("inf")),
    "angle": _angular_distance,
    "masked": _masked_distance,
}
ALIKE = "l2, treated alike"


def compute_distances(shared: Tensor, candidates: Tensor, norm: Norm) -> Tensor:
    """Distances of shared images [N, ...] to candidates [K, ...], in float64."""
    return norm(shared.flatten(1).double(), candidates.flatten(1).double())


def compute_identification_rate(gaps: Tensor) -> float:
    """The share of shared images whose nearest candidate is that of their own number."""
    if not len(gaps):
        return 0.0
    return float((gaps.argmin(1) == torch.arange(len(gaps))).double().mean())


def score_copies(gaps: Tensor) -> Tensor:
    """For each candidate minus the distance to the nearest shared image: high for members."""
    return -gaps.amin(0)


def score_origins(gaps: Tensor, numbers: int) -> Tensor:
    """For each candidate how likely it is, at the most, that a shared image was made of it and not
    of another candidate, as a logarithm; the noise on each of `numbers` is what the closest
    candidate leaves."""
    variance = gaps.square().amin(1, keepdim=True).clamp_min(1e-12) / numbers
    return torch.log_softmax(-gaps.square() / (2 * variance), 1).amax(0)


def _measure_distances(table: SharedTable, originals: Originals) -> Iterator[tuple[str, Tensor]]:
    """Names, and distances of shared images (the mean over views) to candidates [N, K].

    The candidates begin with the originals. An attacker who holds them can also do to them what a
    site does to an image of the label that was seen, and leave the noise out, which only blurs.
    """
    shared, pool = originals.shared.mean(0), torch.cat([originals.images, originals.others])
    for name, norm in NORMS.items():
        yield name, compute_distances(shared, pool, norm)
    pixels = (pool * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    gaps = torch.empty(len(shared), len(pool), dtype=torch.float64)
    for label in sorted(set(originals.targets.tolist())):
        of_class = originals.targets == label
        candidates = table.share_without_noise(pixels, label)
        gaps[of_class] = compute_distances(shared[of_class], candidates, NORMS["l2"])
    yield ALIKE, gaps


@ATTACKS.register("match")
class Match(Attack):
    """The nearest original of each shared image, by several distances."""

    needs = "shared images"
    summary = "does a shared image find its original among a site's images and others?"

    def run(self, view: View, job: Job) -> Findings:
        """The share that does, for each distance."""
        table = view.shared_images()
        originals = job.truth.originals(table)
        matchings = (
            Matching(name, gaps.shape[0], gaps.shape[1], compute_identification_rate(gaps))
            for name, gaps in _measure_distances(table, originals)
        )
        return Findings(truth=originals.images, matchings=tuple(matchings))


@ATTACKS.register("shared-membership")
class SharedMembership(Attack):
    """Is an image that the attacker holds among those that were shared?"""

    needs = "shared images"
    summary = "is an image among those that were shared? AUC, and members found at 1 % alarms"

    def run(self, view: View, job: Job) -> Findings:
        """By the distance to the nearest shared image, and by how likely it is the origin of one:
        those that were shared against others."""
        table = view.shared_images()
        originals = job.truth.originals(table)
        images = originals.images
        member = torch.arange(len(images) + len(originals.others)) < len(images)
        whose = "all sites" if len(table.sets) > 1 else table.sets[0].site
        results = []
        for name, gaps in _measure_distances(table, originals):
            results.append(
                score_membership(f"nearest shared image, {name}", whose, score_copies(gaps), member)
            )
            if name == ALIKE:
                likely = score_origins(gaps, images[0].numel() if len(images) else 1)
                results.append(score_membership(f"likely origin, {name}", whose, likely, member))
        return Findings(truth=images, members=tuple(results))
