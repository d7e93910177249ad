"""How long an attack may go on, what it tells meanwhile, and how it goes on after a stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors, write_tensors
from vitrail.rng import Key, server

Tell = Callable[[int, int, str], None]  # iterations done, in all, and a figure in words
_EVERY = 20.0  # seconds between two saved states


def quiet(done: int, total: int, note: str) -> None:
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


@dataclass
class Job:
    """One attack on one scene: its budget, its draws, its voice and its memory.

    `file` holds the attack's state; with it, an attack that was stopped goes on where it was
    and ends with the same images. `same` names the question, so that the state of another one
    is never taken up.
    """

    budget: Budget = field(default_factory=Budget)
    key: Key = field(default_factory=lambda: server(1).at("attack"))
    tell: Tell = quiet
    file: Path | None = None
    same: str = ""
    spent: float = 0.0  # seconds of earlier sittings
    _began: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it has worked, earlier sittings included."""
        return self.spent + time.monotonic() - self._began

    @property
    def late(self) -> bool:
        """Whether its seconds are used up."""
        return self.budget.seconds is not None and self.seconds > self.budget.seconds

    def steps(self, own: int, start: int = 0) -> Iterator[int]:
        """The numbers of the iterations to do, until one of the budgets is used up."""
        total = own if self.budget.iterations is None else self.budget.iterations
        for number in range(start, total):
            if self.late:
                return
            yield number

    def length(self, own: int) -> int:
        """How many iterations there are at most: what schedules are laid over."""
        return own if self.budget.iterations is None else self.budget.iterations

    def part(self, *names: object) -> Job:
        """A job within this one: its own file and draws, the same clock."""
        file = (
            None
            if self.file is None
            else self.file.with_name(
                f"{self.file.stem}-{'-'.join(map(str, names))}{self.file.suffix}"
            )
        )
        return Job(self.budget, self.key.at(*names), self.tell, file, self.same, self.seconds)

    def load(self) -> tuple[dict[str, Tensor], int]:
        """The saved state and its iteration; nothing and 0 where there is none."""
        if self.file is None or not self.file.is_file():
            return {}, 0
        tensors, meta = read_tensors(self.file)
        if meta.get("same") != self.same:
            raise RunError(
                "this is the state of another attack",
                where=str(self.file),
                hint="Delete it, or use another --state folder.",
            )
        self.spent = float(meta["seconds"])
        return tensors, int(meta["iteration"])

    def save(self, tensors: Mapping[str, Tensor], iteration: int, now: bool = False) -> None:
        """Write the state down now and then, whole or not at all."""
        if self.file is None or not (now or time.monotonic() - self._saved > _EVERY):
            return
        meta = {"same": self.same, "iteration": iteration, "seconds": self.seconds}
        write_tensors(self.file, tensors, meta)
        self._saved = time.monotonic()
