"""GIFD with a small generator: search in the latent, then in the feature maps, stage by stage.

Fang et al. 2023 (arXiv:2308.04699): the image is what a generator makes of a latent; once that
is found, the input of each later stage is freed in turn, within an L1 ball around where it
starts, and the image of the lowest matching loss is kept. The generator knows public images
only. Here it is a small decoder, not the large GAN of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from vitrail.attack.attack import ATTACKS
from vitrail.attack.budget import Budget
from vitrail.attack.inversion.adaptive import compute_channel_weights
from vitrail.attack.inversion.gradient_matching import Mismatch, total_variation
from vitrail.attack.inversion.image_prior import (
    LATENT,
    check_fits,
    load_generator,
    load_or_train_generator,
)
from vitrail.attack.inversion.inversion_attack import InversionAttack, Recovery
from vitrail.attack.inversion.inverting_gradients import require_labels
from vitrail.attack.inversion.search import Objective, search, select_best_rows
from vitrail.attack.job import Job
from vitrail.attack.public_images import read_public_images
from vitrail.attack.scene import Scene
from vitrail.config.schema import Count, NonNegative, Positive, Section
from vitrail.errors import ConfigError
from vitrail.registry import Registry

GeneratorBuilder = Callable[[tuple[int, int, int]], nn.Module]
GENERATORS: Registry[GeneratorBuilder] = Registry("generator", "attack.gifd.generator")


class GifdOptions(Section):
    """`[attack.gifd]`."""

    public: str | None = None
    """Public images to train the small generator on: any data source."""
    generator: str | None = None
    """A generator's .safetensors file, or the name of one that a plugin registers."""
    generator_steps: Count = 2000
    """Training steps of the small generator; it is kept in the cache."""
    iterations: Count = 1000
    """Steps of all stages together; half of them in the latent."""
    restarts: Count = 1
    """Guesses an update, searched side by side; the best by loss counts."""
    lr: Positive = 0.05
    """The size of a step."""
    tv: NonNegative = 1e-3
    """Weight of the total variation."""
    radius: Positive = 0.1
    """The L1 ball of a stage, as a mean distance for each number of its map."""


def project_onto_l1_ball(x: Tensor, center: Tensor, radius: float) -> Tensor:
    """The nearest point with |x - center|_1 <= radius, row by row (Duchi et al. 2008)."""
    gap = (x - center).flatten(1)
    size = gap.abs()
    ordered = size.sort(1, descending=True).values
    sums = ordered.cumsum(1) - radius
    count = torch.arange(1, size.shape[1] + 1)
    keep = (ordered - sums / count > 0).sum(1, keepdim=True).clamp_min(1)
    level = (sums.gather(1, keep - 1) / keep).clamp_min(0)
    near = gap.sign() * (size - level).clamp_min(0)
    inside = size.sum(1, keepdim=True) <= radius
    return center + torch.where(inside, gap, near).view_as(x)


@dataclass(frozen=True)
class GeneratorObjective:
    """The matching loss of what a generator makes from the input of one of its stages."""

    scene: Scene
    mismatch: Mismatch
    labels: Tensor
    generator: nn.Module

    def images(self, z: Tensor, stage: int) -> Tensor:
        """Pixels [R, n, C, H, W] from a stage's input [R, n, ...]."""
        pixels: Tensor = self.generator(z.flatten(0, 1), stage)
        return pixels.view(*z.shape[:2], *self.scene.shape)

    def make_objective(self, stage: int, tv: float) -> Objective:
        """What the search minimizes at a stage."""

        def objective(z: Tensor) -> tuple[Tensor, Tensor]:
            x = self.scene.seen(self.images(z, stage))
            match = self.mismatch(x, self.labels)
            return match + tv * total_variation(x), match

        return objective


@ATTACKS.register("gifd")
class Gifd(InversionAttack):
    """Images that a generator of public images can make, matched like IG's."""

    summary = "GIFD (small generator): latent, then feature maps within L1 balls; public images"
    paper = "Fang et al. 2023, arXiv:2308.04699"
    Options = GifdOptions

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """Stage by stage, all sites and restarts in one batch; the best image of any stage."""
        generator = self._generator(scene, job)
        restarts, labels = self.options.restarts, require_labels(scene, self.name)
        rows = [site for site in range(len(scene.sites)) for _ in range(restarts)]
        weights = compute_channel_weights(scene, job.key.at("clean")) if self.adaptive else None
        match = GeneratorObjective(
            scene, Mismatch(scene, rows, "cosine", weights), labels[rows], generator
        )
        steps = list(generator.stages.children())  # type: ignore[union-attr]
        held = torch.randn((len(rows), scene.count, LATENT), generator=job.key.at("z").torch())
        best, lowest, done = torch.empty(0), torch.full((len(rows),), torch.inf), 0
        for stage in range(len(steps)):
            if stage:
                with torch.no_grad():
                    inside = steps[stage - 1](held.flatten(0, 1))
                held = inside.view(len(rows), scene.count, *inside.shape[1:])
            part = self._part(job, stage, len(steps))
            result = search(
                held,
                match.make_objective(stage, self.options.tv),
                _make_ball_projection(held, self.options.radius)
                if stage
                else lambda z: z.clamp(-4, 4),
                part,
                self.options.iterations,
                self.options.lr,
                signed=False,
            )
            with torch.no_grad():
                images = match.images(result.x, stage)
            better = result.loss < lowest
            best = (
                images
                if not best.numel()
                else torch.where(_expand_mask(better, best), images, best)
            )
            lowest = torch.where(better, result.loss, lowest)
            held, done = result.x, done + result.iterations
        chosen = select_best_rows(lowest, restarts)
        threat = replace(scene.threat, public_data=self._source())
        return Recovery(best[chosen], labels, lowest[chosen], threat, done, job.seconds)

    def _source(self) -> str:
        return Path(self.options.public or self.options.generator or "").name

    def _part(self, job: Job, stage: int, stages: int) -> Job:
        """Half of the iterations for the latent, the rest shared by the stages after it."""
        total = job.length(self.options.iterations)
        share = total // 2 if stage == 0 else total // (2 * max(1, stages - 1))
        part = job.part(f"stage{stage}")
        part.budget = Budget(max(1, share), job.budget.seconds)
        return part

    def _generator(self, scene: Scene, job: Job) -> nn.Module:
        options = self.options
        where = f"attack.{self.name}.generator"
        if options.generator is not None:
            named = options.generator in GENERATORS
            generator: nn.Module = (
                GENERATORS[options.generator](scene.shape)
                if named or not options.generator.endswith(".safetensors")
                else load_generator(Path(options.generator))
            )
        elif options.public is not None:
            images = read_public_images(Path(options.public), scene.shape)
            generator = load_or_train_generator(images, options.generator_steps, job.tell)
        else:
            raise ConfigError(
                f"{self.name} needs public images or a generator",
                where="--attacks",
                hint="Add --public PATH, or --set gifd.generator=FILE.",
            )
        check_fits(generator, scene.shape, where)
        return generator


@ATTACKS.register("gifd-adaptive")
class AdaptiveGifd(Gifd):
    """The same without visibly noised channels, over all recorded rounds."""

    summary = "gifd without visibly noised channels, over all recorded rounds"
    adaptive = True


def _make_ball_projection(center: Tensor, radius: float) -> Callable[[Tensor], Tensor]:
    size = radius * center[0].numel()
    return lambda z: project_onto_l1_ball(z, center, size)


def _expand_mask(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *(1,) * (like.dim() - 1))
