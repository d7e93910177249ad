"""A pool in which some sites of a simulation answer with what their attack sends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.config.hostile_section import Hostile
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation
from vitrail.engine.plan import Plan
from vitrail.engine.tasks import MissingReply, Reply, RoundMessage, Task
from vitrail.engine.weigh_sites import weigh_sites
from vitrail.engine.workers.pool import Pool
from vitrail.local.inputs import Rows
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network
from vitrail.poisoning import POISONINGS, HostileView
from vitrail.poisoning.poison_images import (
    choose_poisoned,
    list_hostile_sites,
    put_trigger,
    resolve_name,
)
from vitrail.secure_aggregation.steps import StepAnswer, StepRequest

_MOST_EMBEDDED = 32  # images that show what a trigger looks like inside the model


@dataclass
class HostilePool:
    """Plays turns as the pool behind it does; then the hostile sites exchange their updates.

    They see all answers of the round first, so that all of them are in memory at once.
    """

    inner: Pool
    plan: Plan
    network: Network
    federation: Federation
    run: str = ""
    _model: FlatModel | None = field(default=None, init=False)

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply | MissingReply]:
        """The replies in order, those of hostile sites as their attacks make them."""
        replies = list(self.inner.turns(tasks, down))
        if tasks and not tasks[0].closing:
            for number, section in enumerate(self.plan.config.hostile):
                if down.round >= section.start:
                    self._attack(section, number, tasks, down, replies)
        yield from replies

    def exchange(self, requests: Sequence[StepRequest]) -> Iterator[StepAnswer | MissingReply]:
        """In the steps of a secure sum they follow the protocol."""
        return self.inner.exchange(requests)

    def verify(self, site: str, statement: bytes, signature: str) -> bool:
        """As the pool behind it does."""
        return self.inner.verify(site, statement, signature)

    def _attack(
        self,
        section: Hostile,
        number: int,
        tasks: Sequence[Task],
        down: RoundMessage,
        replies: list[Reply | MissingReply],
    ) -> None:
        """Replace the answers of one section's sites in place."""
        sites, config = tuple(self.federation.sites), self.plan.config
        hostile = {site for other in config.hostile for site in list_hostile_sites(other, sites)}
        mine = set(list_hostile_sites(section, sites))
        updates = {
            task.site: reply.update
            for task, reply in zip(tasks, replies, strict=True)
            if isinstance(reply, Reply) and not reply.withheld
        }
        trained = [update for site, update in updates.items() if site in mine]
        if not trained:
            return
        honest = [update for site, update in updates.items() if site not in hostile]
        roster = {
            site: {"examples": float(len(self.federation.sites[site].train))} for site in sites
        }
        classes = self.plan.classes
        target = resolve_name(section.target, classes, "class", "hostile.target")
        source = section.source
        view = HostileView(
            options=section,
            sent=down.tensors,
            honest=honest,
            trained=trained,
            schema=self.plan.stage_at(down.round).schema,
            aggregate=config.aggregate,
            weights=weigh_sites(self.plan, roster, [u.site for u in (*honest, *trained)]),
            statistics=frozenset(
                f"model/{spec.name}" for spec in self.plan.layout.specs if spec.kind == "statistic"
            ),
            classes=len(classes),
            target=target,
            source=None if source is None else resolve_name(source, classes, "class", ""),
            key=self.plan.key.at("round", down.round),
            embed=self._make_embedding(section, number, sorted(mine)[0], down),
        )
        crafted = {u.site: u for u in POISONINGS[section.attack]().craft(view)}
        for at, (task, reply) in enumerate(zip(tasks, replies, strict=True)):
            if task.site in crafted and isinstance(reply, Reply):
                replies[at] = replace(reply, update=crafted[task.site])

    def _make_embedding(
        self, section: Hostile, number: int, site: str, down: RoundMessage
    ) -> Callable[[], Tensor]:
        """A function: what the trigger looks like in the latent map of the model that was sent."""

        def embed() -> Tensor:
            key = self.plan.key.at("bias").at("hostile", number, site)
            rows = choose_poisoned(section, self.federation.sites[site].train, key)
            marked = put_trigger(self.federation.images.images[rows[:_MOST_EMBEDDED]], section, key)
            if self._model is None:
                self._model = FlatModel(copy.deepcopy(self.network))
            views = self._model.named
            for name, tensor in down.tensors.items():
                if name.removeprefix("model/") in views:
                    views[name.removeprefix("model/")].copy_(tensor)
            network = self._model.network
            network.eval()
            with torch.inference_mode():
                pixels = Normalize.of(self.plan.config, self.plan.channels)(np.asarray(marked))
                maps = network.features(network.prefix(pixels))
            height, width = maps.shape[-2:]
            x = min(int(section.position[0] * width), width - 1)
            y = min(int(section.position[1] * height), height - 1)
            return maps[:, :, y, x].mean(0)

        return embed

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """As the pool behind it."""
        return self.inner.logits(values, rows)

    def prefix(self, chunks: Sequence[Rows], view: str) -> Iterator[Tensor]:
        """As the pool behind it."""
        return self.inner.prefix(chunks, view)

    def train_alone(self, sites: Sequence[str]) -> Iterator[str]:
        """As the pool behind it."""
        return self.inner.train_alone(sites)

    def use_features(self, path: Path) -> None:
        """As the pool behind it."""
        self.inner.use_features(path)

    def close(self) -> None:
        """End the pool behind it."""
        self.inner.close()
