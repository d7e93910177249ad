"""Phases: what a site does with its model in one turn. Which parts train, and how long, is data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from vitrail.local.evaluate import compute_features, measure
from vitrail.local.inputs import Feed, draw_epoch
from vitrail.local.loop import train
from vitrail.local.session import Context, Metrics, Result, Site
from vitrail.local.terms import Batch, Sampler, Terms
from vitrail.models.heads.head import Outputs
from vitrail.models.heads.part_head import PartHead
from vitrail.models.parts import PARTS, Part
from vitrail.rng import Key, seed_torch

Forward = Callable[[Tensor], Outputs]
DataAccess = Literal["terms", "nothing", "data"]


class Phase(Protocol):
    """One thing a site does with its model and its images.

    An attribute `sees` says how images get into the model: by "terms", through which per-example
    clipping works; by "nothing", which leaves it alone; left out, past both.
    """

    @property
    def name(self) -> str:
        """How logs and metrics call it."""
        ...

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Change the site's model in place; return figures."""
        ...


@dataclass(frozen=True)
class Fit:
    """Train some parts (None: all) for some epochs (None: `run.local_epochs`)."""

    name: str = "fit"
    parts: tuple[Part, ...] | None = None
    epochs: int | None = None
    sees: ClassVar[DataAccess] = "terms"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Run the local loop on the site's training images, unless that was done already."""
        result = self._take_ahead(site) or self._train(site, ctx)
        site.result = site.result.combine(result)
        return {"train_loss": result.loss}

    def _take_ahead(self, site: Site) -> Result | None:
        """What was trained ahead, if it is this very training: from here, with nothing added."""
        ahead = site.ahead
        if ahead is None or ahead.phase != self.name or site.terms != Terms():
            return None
        if not torch.equal(ahead.start, site.model.values):
            return None
        site.model.values.copy_(ahead.values)
        return ahead.result

    def _train(self, site: Site, ctx: Context) -> Result:
        forward, batches = self.feed(site, ctx)
        with seed_torch(site.key.at(self.name, "dropout")):
            return train(site.model, batches, site.terms, ctx.optimizer, self.parts, forward)

    def feed(self, site: Site, ctx: Context) -> tuple[Forward, Iterator[Batch]]:
        """What a batch goes through, and the batches."""
        if self._has_fixed_features(site):
            return self._feed_fixed_features(site, ctx)
        return self._whole(site, ctx)

    def _has_fixed_features(self, site: Site) -> bool:
        """Whether what the head sees stays the same all along, so that it is computed once."""
        inputs = site.inputs
        varied = inputs.augment.active or (inputs.features is not None and inputs.views > 1)
        trained = set(PARTS if self.parts is None else self.parts)
        return trained <= {"prototypes", "head"} and not varied

    def _feed_fixed_features(self, site: Site, ctx: Context) -> tuple[Forward, Iterator[Batch]]:
        """From what the head sees; where only the last layer trains, from what it weighs."""
        rows, head = site.rows.train, site.model.network.head
        z, labels = (
            compute_features(site.model.network, site.inputs, rows),
            site.inputs.targets(rows),
        )
        draws = self._draw_batches(site, ctx)
        if self.parts != ("head",) or not isinstance(head, PartHead) or not len(rows):
            return head, ((z[at], labels[at]) for at in draws)
        measured = measure(head, z)

        def judge(at: Tensor) -> Outputs:
            return head.compute_logits({name: tensor[at] for name, tensor in measured.items()})

        return judge, ((at, labels[at]) for at in draws)

    def _whole(self, site: Site, ctx: Context) -> tuple[Forward, Iterator[Batch]]:
        """From images, or from the features of the frozen stages."""
        network = site.model.network
        feed = Feed(site.inputs, site.rows.train, site.key.at(self.name, "views").torch())
        prefix = network.prefix if site.inputs.features is None else None
        batches = (feed.batch(at) for at in self._draw_batches(site, ctx))
        return network.rest, ((x if prefix is None else prefix(x), y) for x, y in batches)

    def _draw_batches(self, site: Site, ctx: Context) -> Iterator[Tensor]:
        """Positions, batch by batch."""
        return self.draw_batches(site.key, len(site.rows.train), ctx, site.terms.sampler)

    def draw_batches(
        self, key: Key, count: int, ctx: Context, sampler: Sampler | None = None
    ) -> Iterator[Tensor]:
        """The positions of every batch of a site with so many images."""
        draw = sampler or partial(draw_epoch, generator=key.at(self.name, "batches").torch())
        for _ in range(self.epochs or ctx.epochs):
            yield from draw(count, ctx.batch_size)


def count_epochs(phase: Phase, epochs: int) -> int:
    """How many epochs a phase trains for; `epochs` where it leaves that to the run."""
    return (phase.epochs or epochs) if isinstance(phase, Fit) else 0
