"""The coordinator's memory of the sites' ledgers: heads checked, countersigned, kept, sent back.

The file outlives checkpoints: a run that goes back to an older round still knows every head it was
told, so a site whose ledger went back as well is noticed.
"""

from __future__ import annotations

from typing import Any

from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.tasks import MissingReply
from vitrail.errors import RunError
from vitrail.flower.envelope import OpenedMessage
from vitrail.flower.keys import Keys
from vitrail.release.head_signatures import is_signed_by_node, sign_with_key
from vitrail.release.ledger_heads import (
    HEADS_FILE,
    HeadFile,
    KeptHead,
    find_setback,
    make_head_statement,
    read_told_head,
)


class HeadKeeper:
    """One a run. Without `keys` heads are kept unsigned."""

    def __init__(self, folder: RunFolder, run: str, keys: Keys | None = None) -> None:
        self.folder = folder
        self.run = run
        self.keys = keys
        self.file = HeadFile(folder.server / HEADS_FILE)
        self._latest = self.file.read_latest()

    def make_content(self, site: str) -> dict[str, Any]:
        """What a message to a site brings along: its last head, countersigned."""
        head = self._latest.get(site)
        return {} if head is None else {"countersigned": head.model_dump()}

    def receive(
        self, site: str, round_: int, message: OpenedMessage | MissingReply
    ) -> OpenedMessage | MissingReply:
        """Take the head that a reply carries; a reply without a good one does not count."""
        if isinstance(message, MissingReply):
            return message
        try:
            self._take(site, round_, message.body.get("ledger"))
        except ValueError as err:
            self.folder.log(f"refused a message of {site}: {err}")
            return MissingReply(f"its message was refused: {err}")
        return message

    def sync(self) -> None:
        """Bring the heads of a round to the disk, once for all sites, before any is sent back."""
        self.file.sync()

    def _take(self, site: str, round_: int, raw: Any) -> None:
        told = read_told_head(raw)
        key = b""
        if self.keys is not None:
            key = self._read_public(self.keys, site)
            statement = make_head_statement(self.run, site, round_, told.head)
            if not is_signed_by_node(key, statement, told.signature):
                raise ValueError("the head of its ledger is not signed with its node key")
        before = self._latest.get(site)
        if setback := find_setback(None if before is None else before.head, told.head):
            raise ValueError(
                f"{setback}: it looks restored from a backup, and what left since is unknown there"
            )
        if before is not None and (before.round, before.head) == (round_, told.head):
            return
        self._latest[site] = self._countersign(
            KeptHead(
                run=self.run,
                site=site,
                round=round_,
                key=key.decode().strip(),
                **told.model_dump() if key else {"lines": told.lines, "hash": told.hash},
            )
        )
        self.file.append(self._latest[site], durable=False)

    @staticmethod
    def _read_public(keys: Keys, site: str) -> bytes:
        """Anew for every head: keys change during a run."""
        try:
            return keys.public(site).read_bytes()
        except FileNotFoundError:
            raise ValueError("its key is no longer accepted") from None

    def _countersign(self, head: KeptHead) -> KeptHead:
        """With the key of the certificate that the sites know the coordinator by."""
        if self.keys is None:
            return head
        try:
            signature = sign_with_key(self.keys.private.read_bytes(), head.counterstatement())
            certificate = self.keys.certificate.read_text(encoding="ascii")
        except (OSError, ValueError) as err:
            raise RunError(
                f"the heads of ledgers cannot be countersigned ({err})",
                where=str(self.keys.private),
            ) from err
        signed = {"countersignature": signature, "certificate": certificate}
        return head.model_copy(update=signed)
