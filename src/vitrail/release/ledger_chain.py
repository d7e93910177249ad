"""The chain of a ledger: each line carries a hash over itself and the hash of the line before it.

Whoever changes, removes, adds or moves a line must write every later line anew, and whoever kept an
older hash (a *head*) sees it. What is hashed are the bytes of a line as they stand in the file,
without the hash. Lines of an older ledger have none; the first line that has one is chained to all
bytes before it, so an empty ledger is the case of no bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

CHAIN = "chain"
"""The key of a line's hash: the last one of its line."""
_SUFFIX = re.compile(rb',"chain":"([0-9a-f]{64})"\}\n\Z')
_SUFFIX_BYTES = len(',"chain":""}\n') + 64
_BLOCK = 2**16


@dataclass(frozen=True)
class Head:
    """How far a ledger has come: its number of lines, and the hash of the last one."""

    lines: int
    hash: str


@dataclass(frozen=True)
class Chain:
    """A ledger walked from its start. `problem` says what does not fit, of the first such line;
    `hashes` are those of the lines that were asked for; `size` are its bytes up to there."""

    lines: int = 0
    unchained: int = 0
    hash: str = ""
    problem: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    size: int = 0

    @property
    def head(self) -> Head:
        """Where it ends."""
        return Head(self.lines, self.hash)

    def contains(self, head: Head) -> bool:
        """Whether the ledger once ended there; `head.lines` must have been asked for."""
        return self.hashes.get(head.lines) == head.hash


def add_to_chain(body: bytes, before: str) -> tuple[bytes, str]:
    """A line for the file, from its JSON and the hash before it; and its own hash."""
    own = _hash_line(body, before)
    return body[:-1] + f',"{CHAIN}":"{own}"}}\n'.encode(), own


def read_end(handle: int) -> tuple[int, str]:
    """The size and the last hash of an open ledger, from its end; a torn last line is cut off."""
    size = os.fstat(handle).st_size
    end = find_last_line_end(handle, size)
    if end < size:
        os.ftruncate(handle, end)
    last = os.pread(handle, min(end, _SUFFIX_BYTES), max(0, end - _SUFFIX_BYTES))
    if chained := _SUFFIX.search(last):
        return end, chained[1].decode()
    start = _begin_chain()
    for at in range(0, end, _BLOCK):
        start.update(os.pread(handle, min(_BLOCK, end - at), at))
    return end, start.hexdigest()


def walk_chain(path: Path, wanted: Collection[int] = ()) -> Chain:
    """Check a ledger line by line; lines, not files, are in memory."""
    start, hashes = _begin_chain(), {}
    if 0 in wanted:
        hashes[0] = start.hexdigest()
    chain = Chain(hash=start.hexdigest(), hashes=hashes)
    if not path.exists():
        return chain
    with path.open("rb") as handle:
        return _walk(handle, chain, start, wanted)


def walk_on(path: Path, before: Chain, wanted: Collection[int] = ()) -> Chain:
    """Check what was added to a ledger since it was walked before. It is walked anew from its start
    where it no longer has the line that was its last, or where lines are wanted that the first
    walk did not keep; a change further up is seen by the next whole walk."""
    known = {**before.hashes, before.lines: before.hash}
    if (
        before.problem
        or before.lines == before.unchained
        or any(line <= before.lines and line not in known for line in wanted)
        or not _ends_there(path, before)
    ):
        return walk_chain(path, wanted)
    with path.open("rb") as handle:
        handle.seek(before.size)
        return _walk(handle, replace(before, hashes=known), _begin_chain(), wanted)


def _ends_there(path: Path, chain: Chain) -> bool:
    """Whether a ledger still has the last line of a walk where it was."""
    if not path.exists():
        return False
    with path.open("rb") as handle:
        last = os.pread(handle.fileno(), _SUFFIX_BYTES, max(0, chain.size - _SUFFIX_BYTES))
    chained = _SUFFIX.search(last)
    return chained is not None and chained[1].decode() == chain.hash


def _walk(handle: BinaryIO, chain: Chain, start: hashlib._Hash, wanted: Collection[int]) -> Chain:
    """Go on with a walk, from where a file stands."""
    before, lines, size = chain.hash, chain.lines, chain.size
    unchained, problem, hashes = chain.unchained, chain.problem, dict(chain.hashes)
    for raw in handle:
        if not raw.endswith(b"\n"):
            break  # the torn line of a killed process
        lines, size = lines + 1, size + len(raw)
        suffix = _SUFFIX.search(raw)
        if suffix is None and unchained == lines - 1:
            unchained += 1
            start.update(raw)
            before = start.hexdigest()
        elif suffix is None:
            problem = problem or f"line {lines} has no hash, and the lines before it have"
            before = ""
        else:
            own = suffix[1].decode()
            if own != _hash_line(raw[: suffix.start()] + b"}", before):
                problem = problem or _describe_misfit(lines)
            before = own
        if lines in wanted:
            hashes[lines] = before
    return Chain(lines, unchained, before, problem, hashes, size)


def _describe_misfit(line: int) -> str:
    return (
        f"line {line} does not fit the lines before it: it was changed, or a line was removed, "
        "added or moved there"
    )


def _hash_line(body: bytes, before: str) -> str:
    return hashlib.sha256(b"vitrail ledger line\n" + before.encode() + b"\n" + body).hexdigest()


def _begin_chain() -> hashlib._Hash:
    return hashlib.sha256(b"vitrail ledger start\n")


def find_last_line_end(handle: int, size: int) -> int:
    """Where the last whole line ends, looked for from the end."""
    stop = size
    while stop > 0:
        begin = max(0, stop - _BLOCK)
        if (at := os.pread(handle, stop - begin, begin).rfind(b"\n")) >= 0:
            return begin + at + 1
        stop = begin
    return 0
