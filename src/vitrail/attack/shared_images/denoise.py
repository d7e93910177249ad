"""Denoising inversion: public images go through the sites' own protection, and a network learns
the way back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.findings import Findings, Row
from vitrail.attack.identification import Identification, judge_pairs
from vitrail.attack.image_scores import Score, score_pairs
from vitrail.attack.job import Job
from vitrail.attack.public_images import read_public_images
from vitrail.attack.shared_images.originals import Originals
from vitrail.attack.shared_images.shared_table import SharedTable
from vitrail.attack.shared_images.unet import load_or_train_unet
from vitrail.attack.true_images import to_unit_range
from vitrail.attack.view import View
from vitrail.config.schema import Count, Section
from vitrail.errors import ConfigError

SHARED = "as shared"
Pixels = npt.NDArray[np.uint8]


class DenoiseOptions(Section):
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
class Denoise(Attack):
    """A small U-Net from shared to raw images, trained on public ones through the same phase."""

    summary = "shared images back to raw ones, by a U-Net trained on public images"
    needs = "shared images"
    Options = DenoiseOptions

    def run(self, view: View, job: Job) -> Findings:
        """Learn from the public images that the options name."""
        table = view.shared_images()
        originals = job.truth.originals(table)
        if self.options.public is None:
            raise ConfigError(
                "denoising learns from public images",
                where=f"attack.{self.name}",
                hint="Add --public PATH: images that no site holds.",
            )
        file = Path(self.options.public)
        public = read_public_images(file, table.shape)
        search_job = job.ask(self.name, self.options.model_dump(mode="json"))
        return self.score_denoising(table, originals, public, search_job, file.name)

    def score_denoising(
        self, table: SharedTable, originals: Originals, public: Pixels, job: Job, whose: str
    ) -> Findings:
        """References, the shared images as they are, and what the network makes of them.

        `public` are uint8 [N, H, W, C]; `whose` says what they are.
        """
        images, pool = originals.images, originals.others
        restored, steps = self._restore_images(table, originals.shared, public, job)
        scores = tuple(score_pairs(restored, images, pool))
        row = Row(
            self.name,
            scores,
            table.threat(whose),
            iterations=steps,
            seconds=job.seconds,
            images=restored,
            identification=_judge(scores, originals),
            planned=self.options.steps if steps < self.options.steps else 0,
        )
        guesses = {
            "random image": pool[torch.arange(len(images)) % len(pool)],
            "mean image": pool.mean(0, keepdim=True).expand_as(images).contiguous(),
            SHARED: originals.shared[0].clamp(0, 1),
        }
        references = (_make_reference_row(name, x, originals) for name, x in guesses.items())
        return Findings(rows=(*references, row), truth=images)

    def _restore_images(
        self, table: SharedTable, shared: Tensor, public: Pixels, job: Job
    ) -> tuple[Tensor, int]:
        """The mean over views of what the network makes of shared images [views, N, C, H, W], and
        how many steps it had to learn."""
        options = self.options
        order = job.key.at("public").numpy().permutation(len(public))[: options.most]
        images = public[order]
        draws = [table.imitate(images, job.key.at("imitate", n)) for n in range(options.draws)]
        network = load_or_train_unet(
            torch.cat(draws),
            to_unit_range(images),
            job.key.at("unet"),
            job.length(options.steps),
            job.tell,
            4 * options.width,
            lambda: job.late,
        )
        return torch.stack([network.restore(view) for view in shared]).mean(0), network.steps


def _make_reference_row(name: str, images: Tensor, originals: Originals) -> Row:
    """What needs no attack."""
    scores = tuple(score_pairs(images, originals.images, originals.others))
    return Row(name, scores, images=images, identification=_judge(scores, originals))


def _judge(scores: Sequence[Score], originals: Originals) -> Identification | None:
    candidates = len(originals.images) + len(originals.others)
    return judge_pairs(sum(score.identified for score in scores), len(scores), candidates)
