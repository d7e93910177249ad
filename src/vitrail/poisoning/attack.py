"""What an attack of hostile sites is: poisoned images, crafted updates, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.config.hostile_section import Hostile
from vitrail.config.schema import Aggregate
from vitrail.geometry import polar_factor
from vitrail.registry import Registry
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import Key

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class HostileView:
    """What the hostile sites of one section know in one round.

    They work together and know everything: what was sent, what the honest sites answer, how the
    server adds up. `trained` are their own updates as they would have been sent, after training
    on their images, poisoned or not. `weights` are those of the honest sites and then theirs.
    """

    options: Hostile
    sent: Mapping[str, Tensor]
    honest: Sequence[Update]
    trained: Sequence[Update]
    schema: Schema
    aggregate: Aggregate
    weights: Mapping[str, float]
    statistics: Set[str]
    classes: int
    target: int
    source: int | None
    key: Key
    embed: Callable[[], Tensor] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """What an attack moves: floating-point tensors that are added up, running statistics
        left as they were trained, since a wrong one shows at once."""
        return tuple(
            field
            for field in self.schema.up_added
            if field.dtype.is_floating_point
            and field.name in self.sent
            and field.name not in self.statistics
        )

    def flatten(self, update: Update) -> Tensor:
        """The change that an update makes, in float64."""
        parts = [
            (update.tensors[f.name].double() - self.sent[f.name].double()).reshape(-1)
            for f in self.fields
        ]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def stack_honest(self) -> Tensor:
        """The changes of the honest sites, [sites, numbers]; where none is there, their own."""
        return torch.stack([self.flatten(update) for update in self.honest or self.trained])

    def dress(self, change: Tensor, update: Update) -> Update:
        """An update that makes this change and looks like a site's own: frames stay frames."""
        tensors, at = dict(update.tensors), 0
        for field in self.fields:
            size = int(torch.Size(field.shape).numel())
            moved = self.sent[field.name].double() + change[at : at + size].view(field.shape)
            if field.geometry != "euclidean":
                moved = polar_factor(moved)
            tensors[field.name] = moved.to(field.dtype)
            at += size
        return replace(update, tensors=tensors)


class Poisoning:
    """An attack. Its docstring's first line and `paper` are what users read."""

    paper: str = ""
    strength: float = 1.0
    meaning: str = ""
    """What `strength` means."""
    flips: bool = False  # whether labels of a hostile site's images change
    marks: bool = False  # whether a share of its images gets the trigger and the target's label

    def check(self, schema: Schema) -> None:
        """Refuse messages that the attack has nothing to do with."""
        del schema

    def craft(self, view: HostileView) -> list[Update]:
        """What the hostile sites send instead; left alone, what they trained."""
        return list(view.trained)

    def read_strength(self, view: HostileView) -> float:
        """The section's strength, else the attack's own."""
        return self.strength if view.options.strength is None else view.options.strength


POISONINGS: Registry[type[Poisoning]] = Registry("attack of hostile sites", "hostile.attack")
