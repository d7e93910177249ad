"""FedFTG: the server fine-tunes the mean on images that a generator makes to show what it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from vitrail.aggregate.sums import Sums
from vitrail.config.schema import Count, NonNegative, Positive
from vitrail.local.optimizer import OptimizerSettings, Stepper, make_adam, make_steppers
from vitrail.local.session import Context, Metrics
from vitrail.methods.base.auxiliary_model import build_module, get_module_tensors, load_into
from vitrail.methods.base.label_counts import (
    compute_label_shares,
    make_label_facts,
    read_label_counts,
)
from vitrail.methods.base.method import METHODS, Method
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_options import ServerOptions
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.models.generator import ImageGenerator, diversity_loss

GENERATOR = "generator"


class FtgOptions(ServerOptions):
    """Keys of `[method]`: how often the two take turns, and what the generator is after."""

    steps: Count = 10
    """Turns in a round: a step of the generator, then some of the model."""
    model_steps: Count = 5
    """Steps of the model in a turn."""
    generator_lr: Positive = 0.01
    """Adam's rate for the generator."""
    noise: Count = 32
    """Numbers of noise behind an image."""
    width: Count = 16
    """Channels of the generator's last map, rounded up to fours."""
    fidelity: NonNegative = 1.0
    """The weight of images that the sites' models take for their class."""
    diversity: NonNegative = 1.0
    """The weight of what keeps images of different noise apart."""


@METHODS.register("fedftg")
class FedFTG(Method):
    """After the mean, the model w and a generator G of x = G(y, noise) play at the server

        min over w, max over G of  md - fidelity * cls - diversity * dis,
        md  = sum over sites k of a_k(y) KL(softmax w(x) || softmax w_k(x)),
        cls = CE(sum over sites k of a_k(y) w_k(x), y),

    where a_k(y) is site k's share of all images of class y in the round, and y is drawn as they
    have it. Normalization keeps the statistics of the mean. Local training is FedAvg's; sites tell
    their label histograms once.
    """

    summary = "FedAvg, then the mean is fine-tuned on images made to show where sites disagree"
    paper = "Zhang et al. 2022, arXiv:2203.09249"
    Options = FtgOptions
    needs = "all"
    server_data = "generated"

    def facts(self, labels: npt.NDArray[np.int64], classes: int) -> dict[str, float]:
        """The number of examples, of each class too."""
        return {**super().facts(labels, classes), **make_label_facts(labels, classes)}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean, fine-tuned; the generator goes on from round to round."""
        super().close(server, sums, ctx)
        trainer, options = server.required_trainer, self.options
        counts = read_label_counts(server.roster, sums.models, ctx.classes)
        model, device = trainer.load(server.values), trainer.model.values.device
        game = GeneratorGame(
            trainer,
            self._generator(server, ctx),
            [
                server.layout.views(server.assemble_site_model(tensors).to(device))
                for tensors in sums.models.values()
            ],
            compute_label_shares(counts),
            compute_trust(counts).float().to(device),
            options,
            ctx.key.at("images").torch(),
        )
        moving = make_steppers(model, None, OptimizerSettings("adam", options.server_lr))
        optimizer = make_adam(game.generator.parameters(), options.generator_lr)
        gap = 0.0
        for _ in range(options.steps):
            game.step_generator(optimizer)
            for _ in range(options.model_steps):
                gap = game.step_model(moving)
        server.values.copy_(model.values.to(server.values.device))
        server.state |= get_module_tensors(game.generator, GENERATOR)
        seen = options.steps * (1 + options.model_steps) * options.server_batch
        return {"disagreement": gap, "image_steps": float(seen)}

    def _generator(self, server: Server, ctx: Context) -> ImageGenerator:
        """A fresh generator in the first round, then the one of the round before."""
        image, options = server.required_trainer.image, self.options
        width = -(-options.width // 4) * 4
        generator = build_module(
            lambda: ImageGenerator(ctx.classes, image, options.noise, width),
            ctx.key.at(GENERATOR),
        )
        known = any(name.startswith(f"{GENERATOR}/") for name in server.state)
        return load_into(generator, server.state, GENERATOR) if known else generator


@dataclass(frozen=True)
class GeneratorGame:
    """The model of the server against a generator, the sites' models (`teachers`) as judges.

    `shares` is how often a class is drawn, `trust` is a_k(y) as [sites, classes].
    """

    trainer: ServerTrainer
    generator: ImageGenerator
    teachers: Sequence[Mapping[str, Tensor]]
    shares: Tensor
    trust: Tensor
    options: FtgOptions
    draws: torch.Generator

    def step_generator(self, optimizer: Stepper) -> None:
        """One step of the generator: images on which the model and the sites' models differ, which
        these take for their class, and which are not all alike."""
        labels, noise = self._drawn()
        images = self.generator(labels, noise)
        logits, site_logits = self._compute_logits(images)
        here, trust = labels.to(logits.device), self.trust[:, labels]
        loss = self.options.fidelity * fidelity(site_logits, trust, here)
        loss = loss - disagreement(logits, site_logits, trust)
        loss = loss + self.options.diversity * diversity_loss(images, noise).to(logits.device)
        self.generator.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def step_model(self, moving: Sequence[Stepper]) -> float:
        """One step of the model toward the sites' models; returns how far they were apart."""
        labels, noise = self._drawn()
        with torch.no_grad():
            images = self.generator(labels, noise)
        logits, site_logits = self._compute_logits(images)
        gap = disagreement(logits, site_logits, self.trust[:, labels])
        self.trainer.model.grads.zero_()
        gap.backward()  # type: ignore[no-untyped-call]
        for stepper in moving:
            stepper.step()
        return float(gap.detach())

    def _drawn(self) -> tuple[Tensor, Tensor]:
        return self.generator.draw(self.options.server_batch, self.shares, self.draws)

    def _compute_logits(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logits of the model and of every site's."""
        network, inputs = self.trainer.model.network, self.trainer.inputs
        x = inputs.normalize(images * 255).to(inputs.device)
        return network(x), [
            functional_call(network, dict(tensors), (x,)) for tensors in self.teachers
        ]


def compute_trust(counts: Tensor) -> Tensor:
    """a_k(y): each site's share of a class, [sites, classes]; all alike where no site has any."""
    total = counts.sum(0, keepdim=True)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / max(1, len(counts)))


def disagreement(logits: Tensor, site_logits: Sequence[Tensor], trust: Tensor) -> Tensor:
    """The mean over images of sum_k a_k(y) KL(softmax(logits) || softmax(site_logits_k))."""
    log_probabilities = F.log_softmax(logits, dim=1)
    gaps = [
        (log_probabilities.exp() * (log_probabilities - F.log_softmax(other, dim=1))).sum(1)
        for other in site_logits
    ]
    return (trust * torch.stack(gaps)).sum(0).mean()


def fidelity(site_logits: Sequence[Tensor], trust: Tensor, labels: Tensor) -> Tensor:
    """CE(sum_k a_k(y) site_logits_k, y)."""
    return F.cross_entropy((trust[..., None] * torch.stack(list(site_logits))).sum(0), labels)
