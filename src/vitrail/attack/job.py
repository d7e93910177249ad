"""One attack at work: its budget, its draws, its voice, its memory, and what it is scored by."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from vitrail.attack.budget import Budget, Tell, tell_nobody
from vitrail.attack.ground_truth import GroundTruth
from vitrail.errors import RunError
from vitrail.files import read_tensors, write_tensors
from vitrail.rng import Key, derive_server_key

LabelKnowledge = Literal["both", "known", "inferred"]
_EVERY = 20.0  # seconds between two saved states


@dataclass
class Job:
    """One attack, or one search of it.

    `truth` is for scoring only; `labels` says whether the attacker knows them. `folder` is where
    searches keep their states: `ask` makes the job of one search, with a `file` there. With it, a
    search that was stopped goes on where it was and ends with the same images. `same` names the
    question, so that the state of another one is never taken up.
    """

    budget: Budget = field(default_factory=Budget)
    key: Key = field(default_factory=lambda: derive_server_key(1).at("attack"))
    begin: Callable[[], Tell] = lambda: tell_nobody
    file: Path | None = None
    same: str = ""
    spent: float = 0.0  # seconds of earlier sittings
    truth: GroundTruth = field(default_factory=GroundTruth)
    labels: LabelKnowledge = "both"
    folder: Path | None = None
    _tell: Tell | None = None
    _began: float = field(default_factory=lambda: time.monotonic())
    _saved: float = field(default_factory=lambda: time.monotonic())

    @property
    def tell(self) -> Tell:
        """Its voice: iterations done, in all, and a number in words."""
        if self._tell is None:
            self._tell = self.begin()
        return self._tell

    @property
    def seconds(self) -> float:
        """How long it has worked, earlier sittings included."""
        return self.spent + time.monotonic() - self._began

    @property
    def late(self) -> bool:
        """Whether its seconds are used up."""
        return self.budget.seconds is not None and self.seconds > self.budget.seconds

    def steps(self, usual: int, start: int = 0) -> Iterator[int]:
        """The numbers of the iterations to do, until one of the budgets is used up."""
        for number in range(start, self.length(usual)):
            if self.late:
                return
            yield number

    def length(self, usual: int) -> int:
        """How many iterations there are at most, `usual` where no budget says so: what schedules
        are laid over."""
        return usual if self.budget.iterations is None else self.budget.iterations

    def ask(self, name: str, question: Mapping[str, Any]) -> Job:
        """The job of one search, on a clock of its own; the same question finds its state again."""
        same = json.dumps(question, sort_keys=True)
        digest = hashlib.blake2b(same.encode(), digest_size=6).hexdigest()
        file = None if self.folder is None else self.folder / f"{name}-{digest}.safetensors"
        return Job(self.budget, self.key, self.begin, file, same)

    def part(self, *names: object) -> Job:
        """A job within this one: its own file and draws, the same clock."""
        file = (
            None
            if self.file is None
            else self.file.with_name(
                f"{self.file.stem}-{'-'.join(map(str, names))}{self.file.suffix}"
            )
        )
        return Job(
            self.budget, self.key.at(*names), lambda: self.tell, file, self.same, self.seconds
        )

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
