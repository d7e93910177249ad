"""What leaves a site. Server, attacker and auditor all receive this same object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Update:
    """Named tensors, counts and scalar metrics of one site in one round. Made in `release` only."""

    site: str
    round: int
    stage: str
    tensors: Mapping[str, Tensor]
    counts: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of tensors."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())
