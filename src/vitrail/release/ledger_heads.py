"""Heads of ledgers as they travel and are kept: signed by the site, countersigned by the server.

A site that told its head cannot later show another ledger that ends before it or went another way:
the head would not be in it. Files of heads are only ever appended to, whatever a run goes back to.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vitrail.errors import RunError
from vitrail.files import report_write_errors
from vitrail.release.ledger_chain import Head, find_last_line_end

HEADS_FILE = "ledger_heads.jsonl"
"""Of all sites in the server's folder, of one site beside its ledger."""
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{0,512}$")]


class ToldHead(BaseModel):
    """What a site tells of its ledger with a reply; without keys the signature is empty."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    lines: _Count
    hash: _Hash
    signature: _Signature = ""

    @property
    def head(self) -> Head:
        """Where the ledger ended."""
        return Head(self.lines, self.hash)


class KeptHead(ToldHead):
    """A head as the server keeps it and sends it back, with both signatures and whose they are."""

    run: str
    site: str
    round: _Count
    key: Annotated[str, Field(max_length=1024)] = ""
    """The site's public key."""
    countersignature: _Signature = ""
    certificate: Annotated[str, Field(max_length=2**14)] = ""
    """The server's certificate."""

    def statement(self) -> bytes:
        """What the site signs."""
        return make_head_statement(self.run, self.site, self.round, self.head)

    def counterstatement(self) -> bytes:
        """What the server signs."""
        said = [self.run, self.site, self.round, self.lines, self.hash, self.signature]
        return json.dumps(["vitrail ledger countersignature", *said]).encode()


def make_head_statement(run: str, site: str, round_: int, head: Head) -> bytes:
    """What a site signs: how far its ledger had come in a round of a run."""
    said = ["vitrail ledger head", run, site, round_, head.lines, head.hash]
    return json.dumps(said).encode()


class HeadFile:
    """An append-only file of heads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[KeptHead]:
        """Every whole line."""
        if not self.path.exists():
            return []
        heads = []
        for number, raw in enumerate(self.path.read_bytes().splitlines(keepends=True), 1):
            if not raw.endswith(b"\n"):
                break  # the torn line of a killed process
            try:
                heads.append(KeptHead.model_validate_json(raw))
            except ValidationError as err:
                raise RunError(
                    f"line {number} of {self.path.name} is no head of a ledger",
                    where=str(self.path.parent),
                    hint="Restore this file; it is never written to but at its end.",
                ) from err
        return heads

    def read_latest(self) -> dict[str, KeptHead]:
        """The last head of each site."""
        return {head.site: head for head in self.read()}

    def append(self, head: KeptHead, durable: bool = True) -> None:
        """Add a head; a durable one is on the disk before anything else happens."""
        raw = (json.dumps(head.model_dump(exclude_defaults=True)) + "\n").encode()
        with report_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(handle).st_size
                if (end := find_last_line_end(handle, size)) < size:
                    os.ftruncate(handle, end)
                while raw:
                    raw = raw[os.write(handle, raw) :]
                if durable:
                    os.fsync(handle)
            finally:
                os.close(handle)

    def sync(self) -> None:
        """Bring every head to the disk."""
        if self.path.exists():
            with report_write_errors(self.path), self.path.open("rb") as handle:
                os.fsync(handle.fileno())


def find_setback(before: Head | None, now: Head) -> str:
    """Why a ledger that ended at `before` cannot end at `now`; empty if it can, as far as two
    heads tell."""
    if before is None or now.lines > before.lines or now == before:
        return ""
    if now.lines < before.lines:
        return f"its ledger has {now.lines} lines and had {before.lines} before"
    return f"line {now.lines} of its ledger is another one than before"


def read_told_head(raw: Any) -> ToldHead:
    """A head from the wire; ValueError if it is none."""
    try:
        return ToldHead.model_validate_json(json.dumps(raw))
    except ValidationError as err:
        raise ValueError(
            "it carries no head of its ledger, as the same version of vitrail would"
        ) from err
