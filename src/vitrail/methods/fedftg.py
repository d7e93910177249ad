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
from vitrail.config.schema import Count, Natural, Positive
from vitrail.local.optimizer import OptimizerSettings, Stepper, adam_over, steppers
from vitrail.local.session import Context, Metrics
from vitrail.methods.bench import Bench
from vitrail.methods.beside import load_into, made, tensors_of
from vitrail.methods.label_counts import label_counts, label_facts, label_shares
from vitrail.methods.method import METHODS, Method
from vitrail.methods.server import Server
from vitrail.methods.server_options import ServerOptions
from vitrail.models.generator import ImageGenerator, apart

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
    fidelity: Natural = 1.0
    """The weight of images that the sites' models take for their class."""
    diversity: Natural = 1.0
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
    at_server = True

    def facts(self, labels: npt.NDArray[np.int64], classes: int) -> dict[str, float]:
        """The number of examples, of each class too."""
        return {**super().facts(labels, classes), **label_facts(labels, classes)}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean, fine-tuned; the generator goes on from round to round."""
        super().close(server, sums, ctx)
        bench, options = server.workplace, self.options
        counts = label_counts(server.roster, sums.models, ctx.classes)
        model, device = bench.load(server.values), bench.model.values.device
        game = Game(
            bench,
            self._generator(server, ctx),
            [server.layout.views(server.site(own).to(device)) for own in sums.models.values()],
            label_shares(counts),
            trusted(counts).float().to(device),
            options,
            ctx.key.at("images").torch(),
        )
        moving = steppers(model, None, OptimizerSettings("adam", options.server_lr))
        artist = adam_over(game.generator.parameters(), options.generator_lr)
        gap = 0.0
        for _ in range(options.steps):
            game.paint(artist)
            for _ in range(options.model_steps):
                gap = game.learn(moving)
        server.values.copy_(model.values.to(server.values.device))
        server.state |= tensors_of(game.generator, GENERATOR)
        seen = options.steps * (1 + options.model_steps) * options.server_batch
        return {"disagreement": gap, "image_steps": float(seen)}

    def _generator(self, server: Server, ctx: Context) -> ImageGenerator:
        """A fresh generator in the first round, then the one of the round before."""
        image, options = server.workplace.image, self.options
        width = -(-options.width // 4) * 4
        found = made(
            lambda: ImageGenerator(ctx.classes, image, options.noise, width),
            ctx.key.at(GENERATOR),
        )
        known = any(name.startswith(f"{GENERATOR}/") for name in server.state)
        return load_into(found, server.state, GENERATOR) if known else found


@dataclass(frozen=True)
class Game:
    """The model on the bench against a generator, the sites' models (`teachers`) as judges.

    `shares` is how often a class is drawn, `trust` is a_k(y) as [sites, classes].
    """

    bench: Bench
    generator: ImageGenerator
    teachers: Sequence[Mapping[str, Tensor]]
    shares: Tensor
    trust: Tensor
    options: FtgOptions
    draws: torch.Generator

    def paint(self, artist: Stepper) -> None:
        """One step of the generator: images on which the model and the sites' models differ, which
        these take for their class, and which are not all alike."""
        labels, noise = self._drawn()
        images = self.generator(labels, noise)
        logits, said = self._judged(images)
        here, trust = labels.to(logits.device), self.trust[:, labels]
        loss = self.options.fidelity * fidelity(said, trust, here)
        loss = loss - disagreement(logits, said, trust)
        loss = loss + self.options.diversity * apart(images, noise).to(logits.device)
        self.generator.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        artist.step()

    def learn(self, moving: Sequence[Stepper]) -> float:
        """One step of the model toward the sites' models; returns how far they were apart."""
        labels, noise = self._drawn()
        with torch.no_grad():
            images = self.generator(labels, noise)
        logits, said = self._judged(images)
        gap = disagreement(logits, said, self.trust[:, labels])
        self.bench.model.grads.zero_()
        gap.backward()  # type: ignore[no-untyped-call]
        for stepper in moving:
            stepper.step()
        return float(gap.detach())

    def _drawn(self) -> tuple[Tensor, Tensor]:
        return self.generator.draw(self.options.server_batch, self.shares, self.draws)

    def _judged(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logits of the model and of every site's."""
        network, inputs = self.bench.model.network, self.bench.inputs
        x = inputs.normalize(images * 255).to(inputs.device)
        return network(x), [functional_call(network, dict(own), (x,)) for own in self.teachers]


def trusted(counts: Tensor) -> Tensor:
    """a_k(y): each site's share of a class, [sites, classes]; all alike where no site has any."""
    total = counts.sum(0, keepdim=True)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / max(1, len(counts)))


def disagreement(logits: Tensor, said: Sequence[Tensor], trust: Tensor) -> Tensor:
    """The mean over images of sum_k a_k(y) KL(softmax(logits) || softmax(said_k))."""
    own = F.log_softmax(logits, dim=1)
    gaps = [(own.exp() * (own - F.log_softmax(other, dim=1))).sum(1) for other in said]
    return (trust * torch.stack(gaps)).sum(0).mean()


def fidelity(said: Sequence[Tensor], trust: Tensor, labels: Tensor) -> Tensor:
    """CE(sum_k a_k(y) said_k, y)."""
    return F.cross_entropy((trust[..., None] * torch.stack(list(said))).sum(0), labels)
