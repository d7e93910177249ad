"""Inverting Gradients (Geiping et al. 2020, arXiv:2003.14053): cosine, TV, signed Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from vitrail.attack.attack import ATTACKS
from vitrail.attack.inversion.adaptive import compute_channel_weights
from vitrail.attack.inversion.gradient_matching import Mismatch, total_variation
from vitrail.attack.inversion.inversion_attack import InversionAttack, Recovery
from vitrail.attack.inversion.search import search, select_best_rows
from vitrail.attack.job import Job
from vitrail.attack.scene import Scene
from vitrail.config.schema import Count, NonNegative, Positive, Section
from vitrail.errors import RunError


class IgOptions(Section):
    """`[attack.ig]`."""

    iterations: Count = 1000
    """Steps of each guess."""
    restarts: Count = 1
    """Guesses an update, searched side by side; the best by loss counts."""
    lr: Positive = 0.1
    """The size of a step, in units of what the network sees."""
    tv: NonNegative = 1e-3
    """Weight of the total variation."""
    start: Annotated[float, Field(gt=0, le=2)] = 0.3
    """Spread of the first guess, in halves of the pixel range."""


@ATTACKS.register("ig")
class InvertingGradients(InversionAttack):
    """Find images whose update points where the seen one does; several steps are unrolled."""

    summary = "cosine matching with total variation, signed Adam, restarts; unrolls local steps"
    paper = "Geiping et al. 2020, arXiv:2003.14053"
    Options = IgOptions

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """All sites and restarts in one batch."""
        options, restarts = self.options, self.options.restarts
        labels = require_labels(scene, self.name)
        rows = [site for site in range(len(scene.sites)) for _ in range(restarts)]
        mismatch = Mismatch(scene, rows, "cosine", self.weights(scene, job))
        y = labels[rows]
        low, high = scene.box

        def objective(x: Tensor) -> tuple[Tensor, Tensor]:
            match = mismatch(x, y)
            return match + options.tv * total_variation(x), match

        result = search(
            draw_first_guess(scene, rows, job, options.start),
            objective,
            lambda x: torch.minimum(torch.maximum(x, low), high),
            job,
            options.iterations,
            options.lr,
        )
        best = select_best_rows(result.loss, restarts)
        return Recovery(
            images=scene.pixels(result.x[best]),
            labels=labels,
            loss=result.loss[best],
            threat=scene.threat,
            iterations=result.iterations,
            seconds=job.seconds,
        )

    def weights(self, scene: Scene, job: Job) -> Sequence[Mapping[str, Tensor] | None] | None:
        """How much each channel of each turn is trusted; None: all the same."""
        del scene, job
        return None


@ATTACKS.register("ig-adaptive")
class AdaptiveInvertingGradients(InvertingGradients):
    """The same by an attacker who drops visibly noised channels and uses all recorded rounds."""

    summary = "ig without visibly noised channels, over all recorded rounds"
    adaptive = True

    def weights(self, scene: Scene, job: Job) -> Sequence[Mapping[str, Tensor] | None] | None:
        """Channels whose change is out of what clean updates look like count nothing."""
        return compute_channel_weights(scene, job.key.at("clean"))


def require_labels(scene: Scene, name: str) -> Tensor:
    """The labels of a scene, which must be there by now."""
    if scene.labels is None:
        raise RunError(f"{name} needs labels, known or inferred", where="attack")
    return scene.labels


def draw_first_guess(scene: Scene, rows: Sequence[int], job: Job, spread: float) -> Tensor:
    """Gaussian images around the middle of the pixel range, one draw a row."""
    low, high = scene.box
    noise = torch.randn(
        (len(rows), scene.count, *scene.shape), generator=job.key.at("start").torch()
    )
    middle, half = (low + high) / 2, (high - low) / 2
    return (middle + spread * half * noise).clamp(min=low, max=high)
