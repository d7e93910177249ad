"""Declarations: which named tensors travel in a stage, and nothing else does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.models.flat import Layout

ANY = -1  # a dimension that is not fixed beforehand
KEEP = "keep"  # the rule of what is not added up: the server keeps each site's tensor as it is


@dataclass(frozen=True)
class Field:
    """One tensor of a message. `rule` is how the server adds it up over sites.

    `bound` is the largest norm the guard lets pass; None leaves that to `aggregate.max_norm`.
    `geometry` is that of the model tensor: frames leave and arrive orthonormal, or not at all.
    What is kept (`KEEP`) has any number of rows (`ANY`) and values within `span`. What is
    `proved` leaves under a guarantee of its own, which a remark in the ledger states.
    """

    name: str
    shape: tuple[int, ...]
    rule: str = "mean"
    dtype: torch.dtype = torch.float32
    bound: float | None = None
    geometry: str = "euclidean"
    span: tuple[float, float] | None = None
    proved: bool = False

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape is what was declared."""
        return len(shape) == len(self.shape) and all(
            wanted in (ANY, size) for wanted, size in zip(self.shape, shape)
        )

    @property
    def bytes(self) -> int:
        """Its size on the wire; 0 where the number of rows decides."""
        if ANY in self.shape:
            return 0
        return int(torch.Size(self.shape).numel()) * self.dtype.itemsize


@dataclass(frozen=True)
class Schema:
    """Everything that may travel in one stage: tensors down; tensors, counts and metrics up.

    Counts are numbers from 1 up that the server computes with; metrics it only writes down.
    """

    down: tuple[Field, ...]
    up: tuple[Field, ...]
    counts: tuple[str, ...] = ("examples", "steps")
    metrics: tuple[str, ...] = ()

    @property
    def up_kept(self) -> tuple[Field, ...]:
        """The fields that the server keeps site by site."""
        return tuple(field for field in self.up if field.rule == KEEP)

    @property
    def up_added(self) -> tuple[Field, ...]:
        """The fields that the server adds up over sites."""
        return tuple(field for field in self.up if field.rule != KEEP)

    @property
    def bytes_up(self) -> int:
        """What one site sends in a round, in bytes of tensors."""
        return sum(field.bytes for field in self.up)

    @property
    def bytes_down(self) -> int:
        """What one site receives in a round, in bytes of tensors."""
        return sum(field.bytes for field in self.down)


def make_model_fields(layout: Layout, answers: Mapping[str, str]) -> tuple[Field, ...]:
    """The fields of the tensors that a table lets travel, named `model/TENSOR`."""
    return tuple(
        Field(f"model/{spec.name}", spec.shape, answers[spec.name], geometry=spec.geometry)
        for spec in layout.specs
        if answers[spec.name] not in ("home", "frozen")
    )


def digest(header: Mapping[str, object], tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of a message, so that the same message can be told from another one."""
    hasher = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        hasher.update(name.encode())
        hasher.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return hasher.hexdigest()
