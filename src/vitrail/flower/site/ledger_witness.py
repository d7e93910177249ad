"""A site's ledger before others: its head is told with every reply, and comes back countersigned.

A head that comes back and is not in the ledger means that the ledger is an older one, as after a
restored backup: what has left since is unknown here, so nothing more leaves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.site.site_errors import Refusal
from vitrail.release.head_signatures import is_issued_by, is_signed_by_certificate
from vitrail.release.ledger_chain import Chain, walk_on
from vitrail.release.ledger_heads import HEADS_FILE, HeadFile, KeptHead, make_head_statement
from vitrail.secure_aggregation.cohort import Signer


@dataclass
class LedgerWitness:
    """Of one site in one run. `strict` takes no countersignature but the coordinator's own. A
    ledger that nobody touched since the last reply is not walked from its start again."""

    folder: SiteFolder
    run: str
    signer: Signer | None = None
    strict: bool = False
    _walked: Chain = field(default_factory=Chain, init=False)
    _stamp: tuple[int, ...] = field(default=(), init=False)

    @property
    def file(self) -> HeadFile:
        """Where countersigned heads are kept: beside the ledger."""
        return HeadFile(self.folder.path / HEADS_FILE)

    def take(self, head: KeptHead | None) -> None:
        """Check the ledger against the head that came back, and keep it."""
        if head is not None:
            self._check_origin(head)
        kept = self.file.read_latest().get(self.folder.site)
        heads = [one for one in (kept, head) if one is not None]
        if self._read_stamp() != self._stamp:
            self._walked = Chain()
        chain = self._walk({one.lines for one in heads})
        if chain.problem:
            raise Refusal(f"the ledger of this site does not hold: {chain.problem}")
        for one in heads:
            if not chain.contains(one.head):
                raise Refusal(
                    f"the head that was countersigned in round {one.round} (line {one.lines}) is "
                    f"not in the ledger of this site, which has {chain.lines} lines: it looks "
                    "restored from a backup, and what left since is unknown here"
                )
        if head is not None and head != kept and (kept is None or head.lines >= kept.lines):
            self.file.append(head)

    def tell(self, round_: int) -> dict[str, Any]:
        """The head of the ledger as it is now, for a reply; it is on the disk before it leaves."""
        ledger = self.folder.ledger()
        ledger.sync()
        head = self._walk().head
        self._stamp = self._read_stamp()
        statement = make_head_statement(self.run, self.folder.site, round_, head)
        signature = "" if self.signer is None else self.signer.sign(statement)
        return {"ledger": {"lines": head.lines, "hash": head.hash, "signature": signature}}

    def _walk(self, wanted: Collection[int] = ()) -> Chain:
        self._walked = walk_on(self.folder.ledger().path, self._walked, wanted)
        return self._walked

    def _read_stamp(self) -> tuple[int, ...]:
        """What changes whenever somebody writes to the ledger's file, or puts another there."""
        path = self.folder.ledger().path
        if not path.exists():
            return ()
        stat = path.stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def _check_origin(self, head: KeptHead) -> None:
        if (head.run, head.site) != (self.run, self.folder.site):
            raise Refusal("the countersigned head is of another ledger")
        if not isinstance(self.signer, NodeSigner):
            return
        if not head.countersignature and not self.strict:
            return
        authority = self.signer.folder / "ca.pem"
        signed = is_signed_by_certificate(
            head.certificate, head.counterstatement(), head.countersignature
        )
        if not signed or not is_issued_by(head.certificate, authority.read_bytes()):
            raise Refusal(
                "the head of this site's ledger came back without the signature of the "
                "coordinator that ca.pem is for"
            )
