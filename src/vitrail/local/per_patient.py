"""DP-SGD whose unit is the patient: patients are drawn, and a patient's gradient is clipped.

Neighbors differ in one patient, whose images are there or blank. A coin decides on all images of a
patient at once, and the mean of their gradients is clipped as a whole, so that a patient moves a
step by at most the clipping norm, however many images it has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vitrail.local.per_example import PerExampleGradient, compute_clip_factors, make_sums
from vitrail.local.poisson import compute_sampling_rate, count_steps
from vitrail.local.terms import Batch, Objective
from vitrail.rng import Stream

Groups = deque[Tensor]  # by batch: the patient of each of its images, in ascending order


@dataclass(frozen=True)
class PatientSampler:
    """Draws patients by coins of their own; `patients` is the patient of each position, from 0.

    The chance is that of an image in plain DP-SGD, so that a batch has as many images on average.
    """

    coins: Stream
    patients: Tensor
    groups: Groups = field(default_factory=deque)

    def __call__(self, count: int, batch_size: int) -> list[Tensor]:
        """The batches of an epoch, each in the order of its patients."""
        chance = compute_sampling_rate(count, batch_size)
        order = torch.argsort(self.patients, stable=True)
        of_order, batches = self.patients[order], []
        for _ in range(count_steps(count, batch_size)):
            is_drawn = self.coins.uniform([count_units(self.patients)]) < chance
            chosen = is_drawn[of_order]
            batches.append(order[chosen])
            self.groups.append(of_order[chosen])
        return batches


def count_units(patients: Tensor) -> int:
    """How many patients there are, numbered from 0 without gaps."""
    return int(patients.max()) + 1 if len(patients) else 0


class PatientGradient(PerExampleGradient):
    """(sum over patients of clip(mean of g over its images) + N(0, (noise x clip)^2)) / expected.

    `expected` is the mean number of patients of a step; `groups` is what the sampler filled.
    """

    def __init__(
        self, clip: float, noise: float, expected: float, source: Stream, groups: Groups
    ) -> None:
        super().__init__(clip, noise, expected, source)
        self.groups = groups

    def _sum_clipped(
        self, moving: dict[str, nn.Parameter], batch: Batch, objective: Objective
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The sum of clipped gradients of patients by name, and the mean loss over images."""
        patients = self.groups.popleft()
        if len(patients) != len(batch[1]):
            raise RuntimeError("a batch was not drawn by patients, which would void the guarantee")
        total = make_sums(moving)
        losses = torch.zeros((), device=batch[0].device)
        open_patient, carried, at = -1, dict[str, Tensor](), 0
        sizes = torch.bincount(patients) if len(patients) else patients
        for grads, loss in self._iterate_gradients(moving, batch, objective):
            losses += loss.detach().sum()
            of_chunk = patients[at : at + len(loss)]
            at += len(loss)
            present, place = torch.unique_consecutive(of_chunk, return_inverse=True)
            means = _add_by_patient(grads, place, 1.0 / sizes[of_chunk], len(present))
            if int(present[0]) == open_patient:  # whose images began in the chunk before
                means = {n: torch.cat([m[:1] + carried[n], m[1:]]) for n, m in means.items()}
            elif carried:
                self._add_clipped(total, carried)
            open_patient, carried = int(present[-1]), {n: m[-1:] for n, m in means.items()}
            self._add_clipped(total, {n: m[:-1] for n, m in means.items()})
        if carried:
            self._add_clipped(total, carried)
        return total, losses / max(1, len(batch[1]))

    def _add_clipped(self, total: dict[str, Tensor], means: dict[str, Tensor]) -> None:
        """Add the clipped gradients of some whole patients; one that is not finite counts 0."""
        scale, fine = compute_clip_factors(means, self.clip)
        for name, tensor in total.items():
            rows = means[f"network.{name}"].flatten(1)
            tensor += (scale @ torch.where(fine[:, None], rows, 0.0).double()).view_as(tensor)


def _add_by_patient(
    grads: dict[str, Tensor], place: Tensor, weights: Tensor, count: int
) -> dict[str, Tensor]:
    """The weighted sums of examples' gradients over the patients of a chunk."""
    sums = {}
    for name, gradient in grads.items():
        rows = gradient.flatten(1)
        weighted = rows * weights.to(rows)[:, None]
        zeros = torch.zeros(count, rows.shape[1], dtype=rows.dtype, device=rows.device)
        sums[name] = zeros.index_add_(0, place.to(rows.device), weighted)
    return sums
