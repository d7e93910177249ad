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
    """Fresh optimizers for the parts that train: one flat leaf per Euclidean part."""
    groups, others = [], []
    for part in PARTS if parts is None else parts:
        where = model.layout.part(part)
        if where.stop == where.start:
            continue
        geometry = next(s.geometry for s in model.layout.specs if s.part == part and s.trainable)
        if geometry != "euclidean":
            others.append(STEPPERS[geometry](model, part, settings))
            continue
        leaf = model.values[where].detach()
        leaf.grad = model.grads[where]
        lr, decay = settings.of(part)
        groups.append({"params": [leaf], "lr": lr, "weight_decay": decay})
    if groups:
        others.insert(0, _euclidean(groups, settings))
    return others


def _euclidean(groups: list[dict[str, object]], settings: OptimizerSettings) -> Stepper:
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr, foreach=False)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, foreach=False)
