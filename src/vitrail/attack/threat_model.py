"""What an attacker knows. Every result carries it: a figure without it says nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Labels = Literal["known", "inferred"]
Statistics = Literal["batch", "running", "none"]
Sees = Literal["update", "sum", "images"]


@dataclass(frozen=True)
class ThreatModel:
    """An honest-but-curious server: it follows the protocol and looks at what it receives.

    It always knows the model it sent, the configuration of the run and the declaration of what
    is released. `sees` says whether it has a site's own update, only the sum over sites, or the
    images that sites shared; `statistics` how the sites' BatchNorm layers normalize while they
    train; `rounds` which rounds it puts together; `unknown` counts the tensors that never left a
    site.
    """

    sees: Sees = "update"
    rounds: tuple[int, ...] = (1,)
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    local_steps: int = 1
    batch_size: int = 1
    images: int = 1
    labels: Labels = "known"
    statistics: Statistics = "none"
    public_data: str | None = None
    defense: tuple[str, ...] = ()
    adaptive: bool = False
    unknown: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def sentence(self) -> str:
        """All of it in words."""
        if self.sees == "images":
            return self._shared()
        what = "one site's update" if self.sees == "update" else "only the sum of all updates"
        rounds = ", ".join(map(str, self.rounds))
        steps = "1 local step" if self.local_steps == 1 else f"{self.local_steps} local steps"
        count = "1 image" if self.images == 1 else f"{self.images} images"
        parts = [
            f"knows the model that was sent and {what} (round {rounds}), {self.optimizer} at "
            f"{self.learning_rate:g}, {steps} of {self.batch_size} on {count}",
            f"labels {self.labels}",
        ]
        if self.statistics != "none":
            parts.append(f"BatchNorm with {self.statistics} statistics")
        parts.append(f"public images: {self.public_data or 'none'}")
        parts.append(f"defense: {', '.join(self.defense) or 'none'}")
        if self.adaptive:
            parts.append("adapts to the defense")
        if self.unknown:
            parts.append(f"{self.unknown} tensors never left the site")
        return "; ".join((*parts, *self.notes))

    def _shared(self) -> str:
        """The words for what was shared as images."""
        rounds = ", ".join(map(str, self.rounds))
        parts = [
            f"has the {self.images} images that sites shared (round {rounds}), and knows the model "
            "that was sent and how they were made",
            f"public images: {self.public_data or 'none'}",
            f"defense: {', '.join(self.defense) or 'none'}",
        ]
        return "; ".join((*parts, *self.notes))
