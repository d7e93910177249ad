"""What a run with or without hostile sites came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoisonedRun:
    """One run: what was tried on it, and what came of it.

    `success` is the share of images of the source, or with the trigger, that the model calls the
    target; None for attacks that only spoil. `alarmed` maps each site under alarm to its first
    round under it, `peaks` each site to the highest sum that its alarm came to.
    """

    method: str
    rule: str
    attack: str
    hostile: tuple[str, ...]
    partition: str
    seed: int
    accuracy: float
    success: float | None
    alarmed: dict[str, int]
    peaks: dict[str, float]
