"""Replies come as sites finish; sums want them in one fixed order. Early ones wait on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vitrail.engine.tasks import MissingReply
from vitrail.flower.link import Answered


def put_in_order(
    answers: Iterable[Answered], sites: Sequence[str], folder: Path
) -> Iterator[Answered]:
    """The answers in the order of `sites`. Memory holds one of them, however many there are."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".waiting-") as scratch:
        waiting: dict[str, Path | MissingReply] = {}
        position = 0
        for number, (site, answer) in enumerate(answers):
            if position < len(sites) and sites[position] == site:
                yield site, answer
                position += 1
            elif isinstance(answer, bytes):
                path = Path(scratch) / str(number)
                path.write_bytes(answer)
                waiting[site] = path
            else:
                waiting[site] = answer
            del answer
            while position < len(sites) and sites[position] in waiting:
                yield sites[position], _take(waiting.pop(sites[position]))
                position += 1


def _take(waiting: Path | MissingReply) -> bytes | MissingReply:
    if isinstance(waiting, MissingReply):
        return waiting
    raw = waiting.read_bytes()
    waiting.unlink()
    return raw
