"""Phases: what a site does with its model in one turn. Which parts train, and how long, is data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from vitrail.local.evaluate import seen
from vitrail.local.inputs import Feed, epoch
from vitrail.local.loop import train
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Batch
from vitrail.models.parts import PARTS, Part
from vitrail.rng import scope


class Phase(Protocol):
    """One thing a site does with its model and its images."""

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

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Run the local loop on the site's training images."""
        key = site.key.at(self.name)
        network = site.model.network
        forward = network.head if self._still(site) else network.rest
        with scope(key.at("dropout")):
            result = train(
                site.model,
                self._batches(site, ctx),
                site.terms,
                ctx.optimizer,
                self.parts,
                forward,
            )
        site.result = site.result.joined(result)
        return {"train_loss": result.loss}

    def _still(self, site: Site) -> bool:
        """Whether what the head sees stays the same all along, so that it is computed once."""
        inputs = site.inputs
        varied = inputs.augment.active or (inputs.features is not None and inputs.views > 1)
        trained = set(PARTS if self.parts is None else self.parts)
        return trained <= {"prototypes", "head"} and not varied

    def _batches(self, site: Site, ctx: Context) -> Iterator[Batch]:
        key = site.key.at(self.name)
        order = key.at("batches").torch()
        if self._still(site):
            rows = site.rows.train
            z, labels = seen(site.model.network, site.inputs, rows), site.inputs.targets(rows)
            for _ in range(self.epochs or ctx.epochs):
                for at in epoch(len(rows), ctx.batch_size, order):
                    yield z[at], labels[at]
            return
        feed = Feed(site.inputs, site.rows.train, key.at("views").torch())
        prefix = site.model.network.prefix if site.inputs.features is None else None
        for _ in range(self.epochs or ctx.epochs):
            for at in epoch(len(feed), ctx.batch_size, order):
                x, y = feed.batch(at)
                yield (x if prefix is None else prefix(x)), y
