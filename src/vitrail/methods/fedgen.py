"""FedGen: the server learns to make features of each class, and sites train on them too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config.schema import Count, NonNegative
from vitrail.local.optimizer import make_adam
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.auxiliary_model import (
    build_module,
    get_module_tensors,
    load_into,
    make_module_fields,
)
from vitrail.methods.base.label_counts import (
    compute_label_shares,
    make_label_facts,
    read_label_counts,
)
from vitrail.methods.base.method import METHODS, About, Method
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_options import ServerOptions
from vitrail.models.flat import FlatModel
from vitrail.models.generator import FeatureGenerator, diversity_loss
from vitrail.release.message import Field
from vitrail.rng import Key

GENERATOR, SHARES, ROUNDS = "generator", "labels/shares", "generator-rounds"
_ANY_KEY = Key(b"shapes")


class GenOptions(ServerOptions):
    """Keys of `[method]`: the generator, and what sites do with it."""

    weight: NonNegative = 1.0
    """The weight of the loss on generated features, at the sites."""
    noise: Count = 32
    """Numbers of noise behind a feature vector."""
    hidden: Count = 128
    """Units of the generator's hidden layer."""
    diversity: NonNegative = 1.0
    """The weight of what keeps features of different noise apart."""


@METHODS.register("fedgen")
class FedGen(Method):
    """A generator G of features z = G(y, noise), trained at the server after each round by

        CE(mean over the round's sites of their heads at z, y) + diversity,   y as all labels are,

    (equation 4; every head counts the same). From then on each local step adds CE(head(z), y) on
    as many features as a batch has images (equation 5). Sites tell their label histograms once.
    """

    summary = "a generator of features, learned from all heads, joins local training"
    paper = "Zhu et al. 2021, arXiv:2105.10056"
    Options = GenOptions
    needs = "all"

    def facts(self, labels: npt.NDArray[np.int64], classes: int) -> dict[str, float]:
        """The number of examples, of each class too."""
        return {**super().facts(labels, classes), **make_label_facts(labels, classes)}

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """The generator, the shares of labels to draw from, and how many rounds it learned."""
        del stage
        generator = self._generator(about.classes, about.features, _ANY_KEY)
        more = (Field(SHARES, (about.classes,)), Field(ROUNDS, (1,)))
        return (*make_module_fields(generator, GENERATOR), *more), ()

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """The model and the generator."""
        if ROUNDS not in server.state:
            fresh = self._generator(ctx.classes, _count_features(server), ctx.key.at(GENERATOR))
            counts = read_label_counts(server.roster, server.roster, ctx.classes)
            server.state |= get_module_tensors(fresh, GENERATOR)
            server.state |= {SHARES: compute_label_shares(counts).float(), ROUNDS: torch.zeros(1)}
        return {**super().open(server, ctx), **server.state}

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """Generated features beside each batch, once the generator has learned."""
        if not float(down[ROUNDS]) or not self.options.weight:
            return Terms()
        width = down[f"{GENERATOR}/out.weight"].shape[0]
        generator = load_into(self._generator(ctx.classes, width, _ANY_KEY), down, GENERATOR)
        draws = site.key.at(GENERATOR).torch()
        return Terms(
            pull=(
                GeneratedFeatures(
                    generator, down[SHARES], ctx.batch_size, self.options.weight, draws
                ),
            )
        )

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean; then the generator learns from the round's heads."""
        super().close(server, sums, ctx)
        heads = [(tensors["head.weight"], tensors["head.bias"]) for tensors in sums.models.values()]
        generator = self._generator(ctx.classes, _count_features(server), _ANY_KEY)
        load_into(generator, server.state, GENERATOR)
        loss = self.train_generator(generator, heads, server.state[SHARES], ctx.key.at("learn"))
        server.state |= get_module_tensors(generator, GENERATOR)
        server.state[ROUNDS] = server.state[ROUNDS] + 1
        return {"generator_loss": loss}

    def train_generator(
        self,
        generator: FeatureGenerator,
        heads: list[tuple[Tensor, Tensor]],
        shares: Tensor,
        key: Key,
    ) -> float:
        """Train the generator against heads (weight, bias); returns the last loss."""
        options, draws = self.options, key.torch()
        # The mean of linear heads is the linear head of their means.
        weight, bias = (torch.stack(parts).double().mean(0).float() for parts in zip(*heads))
        stepper, loss = make_adam(generator.parameters(), options.server_lr), torch.zeros(())
        for _ in range(options.steps):
            labels, noise = generator.draw(options.server_batch, shares, draws)
            z = generator(labels, noise)
            loss = F.cross_entropy(F.linear(z, weight, bias), labels)
            loss = loss + options.diversity * diversity_loss(z, noise)
            generator.zero_grad()
            loss.backward()
            stepper.step()
        return float(loss.detach())

    def _generator(self, classes: int, features: int, key: Key) -> FeatureGenerator:
        noise, hidden = self.options.noise, self.options.hidden
        return build_module(lambda: FeatureGenerator(classes, features, noise, hidden), key)


def _count_features(server: Server) -> int:
    """The channels that the linear head sees."""
    return int(server.layout.views(server.values)["head.weight"].shape[1])


@dataclass(frozen=True)
class GeneratedFeatures:
    """A pull: the gradient of the cross-entropy on features that the generator makes.

    They come from the server, not from the site's images, so what clips and noises the gradients
    of those leaves it alone.
    """

    generator: FeatureGenerator
    shares: Tensor
    count: int
    weight: float
    draws: torch.Generator

    def __call__(self, model: FlatModel) -> None:
        """Add the gradient to that of the site's own batch."""
        labels, noise = self.generator.draw(self.count, self.shares, self.draws)
        device = model.values.device
        with torch.no_grad():
            z = self.generator(labels, noise).to(device)
        logits = model.network.head(z)["logits"]
        loss = self.weight * F.cross_entropy(logits, labels.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
