"""How a site trained, as far as a server can know: rates, steps, and the batches in outline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from vitrail.attack.threat_model import Statistics
from vitrail.errors import RunError
from vitrail.local.optimizer import OptimizerSettings
from vitrail.models.flat import Layout


@dataclass(frozen=True)
class Recipe:
    """SGD with rates by tensor, `steps` steps of `batch_size` images out of `images`."""

    rates: dict[str, float]
    decays: dict[str, float]
    optimizer: str = "sgd"
    momentum: float = 0.0
    steps: int = 1
    batch_size: int = 1
    images: int = 1
    statistics: Statistics = "none"

    @staticmethod
    def plain(
        names: Iterable[str], lr: float, images: int = 1, statistics: Statistics = "none"
    ) -> Recipe:
        """One step of plain SGD on one batch of all images."""
        names = tuple(names)
        zero = dict.fromkeys(names, 0.0)
        rates = dict.fromkeys(names, lr)
        return Recipe(rates, zero, batch_size=images, images=images, statistics=statistics)

    @staticmethod
    def of(
        settings: OptimizerSettings,
        layout: Layout,
        steps: int,
        batch_size: int,
        images: int,
        statistics: Statistics,
    ) -> Recipe:
        """What the configuration of a run says."""
        trained = [spec for spec in layout.specs if spec.trainable]
        return Recipe(
            rates={spec.name: settings.of(spec.part)[0] for spec in trained},
            decays={spec.name: settings.of(spec.part)[1] for spec in trained},
            optimizer=settings.name,
            momentum=settings.momentum,
            steps=steps,
            batch_size=batch_size,
            images=images,
            statistics=statistics,
        )

    @property
    def single(self) -> bool:
        """Whether the update is one gradient: a single step of SGD."""
        return self.steps == 1 and self.optimizer == "sgd"

    def need_gradient(self, attack: str, site: str) -> None:
        """Refuse what is more than one step for an attack that needs the gradient itself."""
        if self.single:
            return
        why = (
            f"{site} took {self.steps} steps"
            if self.steps > 1
            else f"{self.optimizer} does not send it"
        )
        raise RunError(
            f"{attack} needs the gradient of a single SGD step, and {why}",
            where="--attacks",
            hint="Use ig, which unrolls the steps; or record a run with one step a round.",
        )

    def batches(self, count: int) -> list[torch.Tensor]:
        """Positions of `count` stand-ins for the images, step by step, epochs in one order.

        The site's order is its secret; a fixed one is the attacker's guess.
        """
        size = max(1, min(count, round(self.batch_size * count / self.images)))
        epoch = list(torch.split(torch.arange(count), size))
        if len(epoch) > 1 and len(epoch[-1]) == 1 < size:  # as the sites do it
            tail = epoch.pop()
            epoch[-1] = torch.cat([epoch[-1], tail])
        return [epoch[step % len(epoch)] for step in range(self.steps)]
