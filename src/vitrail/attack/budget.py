"""How long an attack may go on, and who hears of it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vitrail.errors import ConfigError

Tell = Callable[[int, int, str], None]  # iterations done, in all, and a number in words


def tell_nobody(done: int, total: int, note: str) -> None:
    """Tell nobody."""
    del done, total, note


@dataclass(frozen=True)
class Budget:
    """At most so many iterations (None: the attack's own number) and so many seconds."""

    iterations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.iterations is not None and self.iterations < 1:
            raise ConfigError(f"{self.iterations} iterations are none", where="--iterations")
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"{self.seconds} seconds are none", where="--seconds")
