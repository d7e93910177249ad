"""Optimizers over flat parts: each part steps in its own geometry, with its own rate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from vitrail.config import schema
from vitrail.errors import ConfigError, suggest_name
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

    def override_with(self, user: schema.Optimizer) -> OptimizerSettings:
        """The method's own values, with what the user's `[optimizer]` says instead.

        A rate is that of every part and takes a method's table of parts away; a decay is that of
        every part too, and leaves their rates.
        """
        unknown = [name for name in user.parts if name not in PARTS]
        if unknown:
            raise ConfigError(
                "there is no such part",
                where=f"optimizer.parts.{unknown[0]}",
                hint=suggest_name(unknown[0], PARTS),
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
        if user.weight_decay is not None:
            parts = {name: (lr, user.weight_decay) for name, (lr, _) in parts.items()}
        for name, override in user.parts.items():
            lr, decay = parts.get(name, (base.lr, base.weight_decay))
            parts[name] = (
                override.lr or lr,
                decay if override.weight_decay is None else override.weight_decay,
            )
        return replace(base, parts=parts)

    def scale(self, share: float) -> OptimizerSettings:
        """The same optimizer with every rate multiplied."""
        if share == 1.0:
            return self
        parts = {name: (lr * share, decay) for name, (lr, decay) in self.parts.items()}
        return replace(self, lr=self.lr * share, parts=parts)

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


def make_steppers(
    model: FlatModel, parts: tuple[Part, ...] | None, settings: OptimizerSettings
) -> list[Stepper]:
    """Fresh optimizers for the parts that train, a flat leaf per run of Euclidean numbers."""
    chosen = PARTS if parts is None else parts
    groups: list[_Group] = []
    steppers: list[Stepper] = []
    for part in chosen:
        leaves = []
        for where in model.trainable_region(part, "euclidean").slices:
            leaf = model.values[where].detach()
            leaf.grad = model.grads[where]
            leaves.append(leaf)
        lr, decay = settings.of(part)
        if leaves:
            groups.append(_Group(leaves, lr, decay))
    if groups:
        steppers.append(_make_euclidean_stepper(groups, settings))
    curved = {(s.part, s.geometry) for s in model.layout.specs if s.geometry != "euclidean"}
    for part, geometry in sorted(curved):
        if part in chosen and model.trainable_region(part, geometry).size:
            steppers.append(STEPPERS[geometry](model, part, settings))
    return steppers


def make_adam(leaves: Iterable[Tensor], lr: float) -> Stepper:
    """A fresh Adam over tensors that belong to no flat model, such as those of a generator."""
    return _Adam([_Group(list(leaves), lr, 0.0)])


def _make_euclidean_stepper(groups: list[_Group], settings: OptimizerSettings) -> Stepper:
    return _Adam(groups) if settings.name == "adam" else _Sgd(groups, settings.momentum)


@dataclass
class _Group:
    """Flat leaves that share a rate."""

    leaves: list[Tensor]
    lr: float
    decay: float

    def grads(self) -> list[Tensor]:
        """The gradients as they are now."""
        return [leaf.grad for leaf in self.leaves if leaf.grad is not None]


class _Sgd:
    """Torch's SGD as a function: `torch.optim.SGD` would import the compiler, two seconds."""

    def __init__(self, groups: list[_Group], momentum: float) -> None:
        self.groups, self.momentum = groups, momentum
        self.momenta: list[list[Tensor | None]] = [[None] * len(g.leaves) for g in groups]

    @torch.no_grad()
    def step(self) -> None:
        """w <- w - lr v, v <- momentum v + g + decay w."""
        for group, momenta in zip(self.groups, self.momenta, strict=True):
            sgd(
                group.leaves,
                group.grads(),
                momenta,
                foreach=False,
                weight_decay=group.decay,
                momentum=self.momentum,
                lr=group.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


class _Adam:
    """Torch's Adam as a function, with its usual constants."""

    def __init__(self, groups: list[_Group]) -> None:
        self.groups = groups
        self.means = [[torch.zeros_like(leaf) for leaf in group.leaves] for group in groups]
        self.squares = [[torch.zeros_like(leaf) for leaf in group.leaves] for group in groups]
        self.steps = [[torch.zeros(()) for _ in group.leaves] for group in groups]

    @torch.no_grad()
    def step(self) -> None:
        """The step of Kingma and Ba (2015), bias-corrected."""
        for at, group in enumerate(self.groups):
            adam(
                group.leaves,
                group.grads(),
                self.means[at],
                self.squares[at],
                [],
                self.steps[at],
                foreach=False,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=group.lr,
                weight_decay=group.decay,
                eps=1e-8,
                maximize=False,
            )
