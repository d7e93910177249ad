"""Optimizers over flat parts: each part steps in its own geometry, with its own rate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch

from vitrail.config import schema
from vitrail.errors import ConfigError, nearest
from vitrail.models.flat import FlatModel
from vitrail.models.parts import PARTS, Part
from vitrail.registry import Registry


@dataclass(frozen=True)
class OptimizerSettings:
    """An optimizer and its rates; `parts` holds (lr, weight_decay) that differ from the rest."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)

    def overridden(self, user: schema.Optimizer) -> OptimizerSettings:
        """The method's own values, with what the user's `[optimizer]` says instead."""
        unknown = [name for name in user.parts if name not in PARTS]
        if unknown:
            raise ConfigError(
                "there is no such part",
                where=f"optimizer.parts.{unknown[0]}",
                hint=nearest(unknown[0], PARTS),
            )
        base = replace(
            self,
            **{
                key: value
                for key in ("name", "lr", "momentum", "weight_decay")
                if (value := getattr(user, key)) is not None
            },
        )
        parts = {} if user.lr is not None else dict(self.parts)
        for name, own in user.parts.items():
            lr, decay = parts.get(name, (base.lr, base.weight_decay))
            parts[name] = (own.lr or lr, decay if own.weight_decay is None else own.weight_decay)
        return replace(base, parts=parts)

    def of(self, part: Part) -> tuple[float, float]:
        """The learning rate and weight decay of one part."""
        return self.parts.get(part, (self.lr, self.weight_decay))


class Stepper(Protocol):
    """Moves some parameters along their gradient."""

    def step(self) -> None:
        """One step with the gradients as they are now."""
        ...


class StepperBuilder(Protocol):
    """Makes the stepper of one part that is not Euclidean."""

    def __call__(self, model: FlatModel, part: Part, settings: OptimizerSettings) -> Stepper:
        """Tie a stepper to a model's flat buffers."""
        ...


STEPPERS: Registry[StepperBuilder] = Registry("geometry", "model")


def steppers(
    model: FlatModel, parts: tuple[Part, ...] | None, settings: OptimizerSettings
) -> list[Stepper]:
    """Fresh optimizers for the parts that train, a flat leaf per run of Euclidean numbers."""
    chosen = PARTS if parts is None else parts
    groups: list[dict[str, object]] = []
    found: list[Stepper] = []
    for part in chosen:
        leaves = []
        for where in model.moving(part, "euclidean").slices:
            leaf = model.values[where].detach()
            leaf.grad = model.grads[where]
            leaves.append(leaf)
        lr, decay = settings.of(part)
        if leaves:
            groups.append({"params": leaves, "lr": lr, "weight_decay": decay})
    if groups:
        found.append(_euclidean(groups, settings))
    curved = {(s.part, s.geometry) for s in model.layout.specs if s.geometry != "euclidean"}
    for part, geometry in sorted(curved):
        if part in chosen and model.moving(part, geometry).size:
            found.append(STEPPERS[geometry](model, part, settings))
    return found


def _euclidean(groups: list[dict[str, object]], settings: OptimizerSettings) -> Stepper:
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr, foreach=False)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, foreach=False)
