"""The ledger of a site: one line of JSON for everything that ever left it. It never rolls back."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.errors import RunError
from vitrail.files import report_write_errors
from vitrail.release.ledger_chain import CHAIN, add_to_chain, read_end

CONTINUE = "continue"
"""The kind of a line that says after which round a finished run goes on."""


def is_remark(line: Mapping[str, Any]) -> bool:
    """Whether a line is about a part of a release, whose own line counts its bytes already."""
    return "round" in line and line.get("kind") not in ("release", "repeat")


def read_mechanisms(line: Mapping[str, Any]) -> tuple[str, ...]:
    """What a release went through, in order; older lines may have one name instead of a list."""
    names = line.get("mechanism", ())
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _is_passed(round_: int, later: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a round lies beyond the one that the site's operator let the run go on after: it was
    the closing turn of a run that was shorter then, and comes again as another one."""
    return any(line.get("kind") == CONTINUE and line["after"] < round_ for line in later)


class Ledger:
    """An append-only file, chained line by line. The same answer to a message is written once.

    `strict` refuses another message for a round already answered; else it is one more line.
    """

    def __init__(self, path: Path, durable: bool = False, strict: bool = True) -> None:
        self.path = path
        self.strict = strict
        self.durable = durable
        self._end = (-1, "")  # size of the file and hash of its last line, as last written

    def has_answered(self, round_: int, message: str) -> bool:
        """Whether this message was answered before; another message for that round is refused."""
        if not self._mentions(round_):
            return False
        lines = self.lines()
        for at, line in enumerate(lines):
            if line.get("round") == round_ and line.get("kind") == "release":
                if _is_passed(round_, lines[at + 1 :]):
                    continue
                if line["message"] == message:
                    return True
                if not self.strict:
                    continue
                raise RunError(
                    f"round {round_} was already answered for another message",
                    where=str(self.path),
                    hint="A site answers each round once, so that averaging cannot undo its noise.",
                )
        return False

    def write(self, line: dict[str, Any]) -> None:
        """Append one line to the chain; a torn last line of a killed process is cut off first."""
        body = json.dumps(line, allow_nan=False, separators=(",", ":")).encode()
        with report_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # the line before must stay the line before
                size, before = self._end
                if os.fstat(handle).st_size != size:  # somebody else wrote, or a part of a line
                    size, before = read_end(handle)
                raw, own = add_to_chain(body, before)
                end = (size + len(raw), own)
                while raw:  # a disk that fills up takes a part and says so at the next call only
                    raw = raw[os.write(handle, raw) :]
                self._end = end
                if self.durable:
                    os.fsync(handle)
            finally:
                os.close(handle)

    def sync(self) -> None:
        """Bring every line to the disk, so that a head that was told is never lost again."""
        if self.path.exists():
            with report_write_errors(self.path), self.path.open("rb") as handle:
                os.fsync(handle.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line, without its hash."""
        if not self.path.exists():
            return []
        raw = self.path.read_bytes().splitlines(keepends=True)
        lines = [json.loads(line) for line in raw if line.endswith(b"\n")]
        for line in lines:
            line.pop(CHAIN, None)
        return lines

    def _mentions(self, round_: int) -> bool:
        """Whether any line is about a round, in whatever order rounds were asked: a look at the
        bytes where they lie, because most rounds are new and a ledger may be long."""
        if not self.path.exists() or not self.path.stat().st_size:
            return False
        with (
            self.path.open("rb") as handle,
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as raw,
        ):
            return raw.rfind(f'"round":{round_},'.encode()) >= 0
