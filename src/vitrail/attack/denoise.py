"""Denoising inversion: public images go through the sites' own protection, and a network learns
the way back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.attack.attack import ATTACKS
from vitrail.attack.budget import Job
from vitrail.attack.originals import Originals
from vitrail.attack.public import public_images
from vitrail.attack.scores import paired
from vitrail.attack.shared import SharedTable
from vitrail.attack.spoils import SharedAttack, Spoils
from vitrail.attack.trial import Row
from vitrail.attack.truth import unit
from vitrail.attack.unet import cached_unet
from vitrail.config.schema import Count, Table
from vitrail.errors import ConfigError

SHARED = "as shared"
Pixels = npt.NDArray[np.uint8]


class DenoiseOptions(Table):
    """`[attack.denoise]`."""

    public: str | None = None
    """Public images to learn from; `--public` sets it."""
    most: Count = 2000
    """Public images that are used at most."""
    draws: Count = 4
    """How often each of them is protected anew."""
    steps: Count = 600
    """Training steps of the denoiser; it is kept in the cache."""
    width: Count = 4
    """A quarter of the channels of its finest maps."""


@ATTACKS.register("denoise")
class Denoise(SharedAttack):
    """A small U-Net from shared to raw images, trained on public ones through the same phase."""

    summary = "shared images back to raw ones, by a U-Net trained on public images"
    Options = DenoiseOptions

    def look(self, table: SharedTable, truth: Originals, job: Job) -> Spoils:
        """Learn from the public images that the options name."""
        if self.options.public is None:
            raise ConfigError(
                "denoising learns from public images",
                where=f"attack.{self.name}",
                hint="Add --public PATH: images that no site holds.",
            )
        file = Path(self.options.public)
        return self.against(table, truth, public_images(file, table.shape), job, file.name)

    def against(
        self, table: SharedTable, truth: Originals, public: Pixels, job: Job, whose: str
    ) -> Spoils:
        """References, the shared images as they are, and what the network makes of them.

        `public` are uint8 [N, H, W, C]; `whose` says what they are.
        """
        pool = truth.others
        random = pool[torch.arange(len(truth.images)) % len(pool)]
        mean = pool.mean(0, keepdim=True).expand_as(truth.images).contiguous()
        made, steps = self._restored(table, truth.shared, public, job)
        own = Row(
            self.name,
            tuple(paired(made, truth.images, truth.others)),
            table.threat(whose),
            iterations=steps,
            seconds=job.seconds,
            images=made,
        )
        shown = {"random image": random, "mean image": mean, SHARED: truth.shared[0].clamp(0, 1)}
        return Spoils((*(_reference(name, x, truth) for name, x in shown.items()), own))

    def _restored(
        self, table: SharedTable, shared: Tensor, public: Pixels, job: Job
    ) -> tuple[Tensor, int]:
        """The mean over views of what the network makes of shared images [views, N, C, H, W], and
        how many steps it had to learn."""
        options = self.options
        order = job.key.at("public").numpy().permutation(len(public))[: options.most]
        images = public[order]
        draws = [table.imitate(images, job.key.at("imitate", n)) for n in range(options.draws)]
        network = cached_unet(
            torch.cat(draws),
            unit(images),
            job.key.at("unet"),
            job.length(options.steps),
            job.tell,
            4 * options.width,
            lambda: job.late,
        )
        return torch.stack([network.restore(view) for view in shared]).mean(0), network.steps


def _reference(name: str, images: Tensor, truth: Originals) -> Row:
    """What needs no attack."""
    return Row(name, tuple(paired(images, truth.images, truth.others)), images=images)
