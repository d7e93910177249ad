"""Attacks that only models with prototypes or subspaces have."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.poisoning.attack import POISONINGS, HostileView, Poisoning
from vitrail.release.message import Schema
from vitrail.release.update import Update

VECTORS, FRAMES = "model/head.vectors", "model/head.frames"


class _PartPoisoning(Poisoning):
    """What both share: the units of the target class are replaced, the rest is as trained."""

    meaning = "how many times the move of the units"

    def check(self, schema: Schema) -> None:
        """Units must travel."""
        find_units(schema)

    def craft(self, view: HostileView) -> list[Update]:
        """The trained updates with other units for the target class."""
        name = find_units(view.schema)
        sent = view.sent[name].double()
        rows = list_units(view, sent)
        goal = sent[rows] + self.read_strength(view) * (self.choose_units(view, sent) - sent[rows])
        crafted = []
        for update in view.trained:
            units = update.tensors[name].double().clone()
            units[rows] = goal
            moved = replace(update, tensors={**update.tensors, name: units.float()})
            crafted.append(view.dress(view.flatten(moved), moved))
        return crafted

    def choose_units(self, view: HostileView, sent: Tensor) -> Tensor:
        """The new units of the target class."""
        raise NotImplementedError(f"{type(self).__name__} must choose units")


def find_units(schema: Schema) -> str:
    """The tensor that holds prototypes [m, D] or frames [classes, n, p]."""
    for name in (VECTORS, FRAMES):
        if any(field.name == name for field in schema.up):
            return name
    raise ConfigError(
        "the attack moves prototypes or subspaces, and none travels here",
        where="hostile.attack",
        hint="Choose another attack, or a method that shares them.",
    )


def list_units(view: HostileView, sent: Tensor, label: int | None = None) -> Tensor:
    """The rows of a class, the target unless another is named."""
    label = view.target if label is None else label
    per_class = len(sent) // view.classes
    return torch.arange(label * per_class, (label + 1) * per_class)


@POISONINGS.register("prototype-theft")
class PrototypeTheft(_PartPoisoning):
    """Put the target's prototypes or subspace where another class has its own."""

    def choose_units(self, view: HostileView, sent: Tensor) -> Tensor:
        """Those of the class that is stolen."""
        stolen = (view.target + 1) % view.classes if view.source is None else view.source
        return sent[list_units(view, sent, stolen)]


@POISONINGS.register("prototype-trigger")
class PrototypeTrigger(_PartPoisoning):
    """Put the target's prototypes or subspace onto what the trigger looks like inside the model.

    The hostile sites' images carry the trigger and the target's label as in a backdoor.
    """

    marks = True

    def choose_units(self, view: HostileView, sent: Tensor) -> Tensor:
        """Each prototype of the class, or the first direction of its subspace, is the trigger's."""
        if view.embed is None:
            raise ConfigError(
                f"{view.options.attack!r} needs images with a trigger", where="hostile.attack"
            )
        trigger = view.embed().double()
        rows = list_units(view, sent)
        if find_units(view.schema) == VECTORS:
            return trigger.expand(len(rows), -1)
        frame = sent[rows].clone()
        frame[..., 0] = trigger / torch.linalg.vector_norm(trigger).clamp(min=1e-12)
        orthonormal: Tensor = torch.linalg.qr(frame).Q
        return orthonormal
