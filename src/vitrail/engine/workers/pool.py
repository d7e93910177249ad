"""Where turns are played: in this process. The worker pool offers the same calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from vitrail.engine.site_turn import Host
from vitrail.engine.tasks import MissingReply, Reply, RoundMessage, Task
from vitrail.local.evaluate import CHUNK
from vitrail.local.inputs import Rows, load_features
from vitrail.secure_aggregation.steps import StepAnswer, StepRequest


class Pool(Protocol):
    """Plays turns. Whatever the number of processes, the answers are the same to the bit. `run` is
    what the sites call the run, nothing in a simulation."""

    run: str

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply | MissingReply]:
        """The replies, in the order of the tasks; a site far away may fail to answer."""
        ...

    def exchange(self, requests: Sequence[StepRequest]) -> Iterator[StepAnswer | MissingReply]:
        """The answers to one step of a secure sum, in the order of the requests."""
        ...

    def verify(self, site: str, statement: bytes, signature: str) -> bool:
        """Whether a site signed a statement in a step of a secure sum; simulated ones sign none."""
        ...

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """A global model's logits on some rows."""
        ...

    def prefix(self, chunks: Sequence[Rows], view: str) -> Iterator[Tensor]:
        """The frozen stages' output for each chunk of rows, in order."""
        ...

    def train_alone(self, sites: Sequence[str]) -> Iterator[str]:
        """Train the local reference of each site; yields a site's name when it is there."""
        ...

    def use_features(self, path: Path) -> None:
        """From now on, feed cached features from this file instead of images."""
        ...

    def close(self) -> None:
        """End it; nothing is left running."""
        ...


def split_rows(rows: Rows, size: int = CHUNK) -> list[Rows]:
    """Rows in pieces of a fixed size, so that the pieces do not depend on who works on them."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


class InProcessPool:
    """One host, this process, one thread."""

    run = ""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply]:
        """Play one after the other."""
        return self.host.turns(tasks, down)

    def exchange(self, requests: Sequence[StepRequest]) -> Iterator[StepAnswer]:
        """One after the other."""
        for request in requests:
            yield self.host.exchange(request)

    def verify(self, site: str, statement: bytes, signature: str) -> bool:
        """Sites of a simulation have no keys."""
        del site, statement, signature
        return True

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """Chunk by chunk, as the workers do."""
        chunks = [self.host.logits(values, rows=chunk) for chunk in split_rows(rows)]
        return torch.cat(chunks)

    def prefix(self, chunks: Sequence[Rows], view: str) -> Iterator[Tensor]:
        """Chunk by chunk."""
        for chunk in chunks:
            yield self.host.prefix(chunk, view)

    def train_alone(self, sites: Sequence[str]) -> Iterator[str]:
        """One after the other."""
        for site in sites:
            self.host.train_alone(site)
            yield site

    def use_features(self, path: Path) -> None:
        """Map the file."""
        self.host.inputs = replace(self.host.inputs, features=load_features(path))

    def close(self) -> None:
        """Give the caller its threads back."""
        torch.set_num_threads(self._threads)
