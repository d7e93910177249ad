"""A site's ledger before others: its head is told with every reply, and comes back countersigned.

A head that comes back and is not in the ledger means that the ledger is an older one, as after a
restored backup: what has left since is unknown here, so nothing more leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.site.site_errors import Refusal
from vitrail.release.head_signatures import is_issued_by, is_signed_by_certificate
from vitrail.release.ledger_chain import walk_chain
from vitrail.release.ledger_heads import HEADS_FILE, HeadFile, KeptHead, make_head_statement
from vitrail.secure_aggregation.cohort import Signer


@dataclass(frozen=True)
class LedgerWitness:
    """Of one site in one run. `strict` takes no countersignature but the coordinator's own."""

    folder: SiteFolder
    run: str
    signer: Signer | None = None
    strict: bool = False

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
        chain = walk_chain(self.folder.ledger().path, {one.lines for one in heads})
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
        head = walk_chain(ledger.path).head
        statement = make_head_statement(self.run, self.folder.site, round_, head)
        signature = "" if self.signer is None else self.signer.sign(statement)
        return {"ledger": {"lines": head.lines, "hash": head.hash, "signature": signature}}

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
