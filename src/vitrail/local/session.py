"""One site during one turn: its images, its model, its state, and what it received."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitrail.data.partition.partition import SiteRows
from vitrail.local.inputs import Inputs
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.terms import Terms
from vitrail.models.flat import FlatModel, Region
from vitrail.rng import Key

State = dict[str, Tensor]
Metrics = dict[str, float]


@dataclass
class Result:
    """What local training did: real steps, images seen and the mean loss."""

    steps: int = 0
    images: int = 0
    loss: float = float("nan")

    def combine(self, other: Result) -> Result:
        """Both phases together; the loss is that of the later one."""
        return Result(self.steps + other.steps, self.images + other.images, other.loss)


@dataclass(frozen=True)
class TrainedAhead:
    """What plain training from `start` comes to in one phase, where it was done for many sites at
    once: the flat values after it."""

    phase: str
    start: Tensor
    values: Tensor
    result: Result


@dataclass
class Site:
    """What a method's code at a site may touch. `key` is the site's own secret for this turn."""

    name: str
    rows: SiteRows
    inputs: Inputs
    model: FlatModel
    state: State
    key: Key
    shared: Region  # trainable numbers that travel
    received: Tensor = field(default_factory=lambda: torch.empty(0))  # flat values before training
    terms: Terms = field(default_factory=Terms)
    result: Result = field(default_factory=Result)
    counts: dict[str, float] = field(default_factory=dict)  # declared by the method
    down: Mapping[str, Tensor] = field(default_factory=dict)  # the message, as it arrived
    out: dict[str, Tensor] = field(default_factory=dict)  # what phases made to be sent
    lines: list[dict[str, Any]] = field(default_factory=list)  # what the ledger is to say of it
    assets: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # kept at the site
    message: str = ""  # what this turn answers
    cause: str = ""  # the run and the mechanisms that this turn belongs to
    digest_data: Callable[[], str] = str  # of the site's images, under its secret
    ahead: TrainedAhead | None = None
    aside: int = 0  # images that steps saw beside the site's own batches

    @property
    def noise(self) -> Key:
        """The root of draws that hide something; they stay unknown as long as `key` does.

        Another message, another run, another mechanism and other images get other draws: two
        answers with the same ones would tell what both hide.
        """
        return self.key.at("noise", self.cause, self.message, self.digest_data())

    @property
    def drift(self) -> Tensor:
        """How far the shared trainable numbers moved from what was received."""
        return self.shared.of(self.model.values) - self.shared.of(self.received)


@dataclass(frozen=True)
class Context:
    """One round as everybody sees it: frozen, no globals. `options` are the method's own."""

    round: int
    stage: str
    sites: int
    classes: int
    epochs: int
    batch_size: int
    optimizer: OptimizerSettings
    options: Any
    key: Key  # the server's root at this round
    channels: int = 3  # of an image
