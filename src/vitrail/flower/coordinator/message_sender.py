"""Messages of one run: sealed when they are sent, and replies that answer them, opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.tasks import MissingReply
from vitrail.errors import VitrailError
from vitrail.flower.coordinator.reply_order import put_in_order
from vitrail.flower.envelope import OpenedMessage, compute_message_id, seal, unseal
from vitrail.flower.link import Link
from vitrail.flower.plain_text import clean_text

Content = tuple[dict[str, Any], dict[str, Tensor]]
MakeContent = Callable[[str], Content]


@dataclass(frozen=True)
class MessageSender:
    """Sends messages of one run and lets only the replies through that answer them."""

    link: Link
    run: str
    limit: int
    folder: RunFolder

    def ask(
        self, kind: str, sites: Sequence[str], make_content: MakeContent, patience: float
    ) -> Iterator[tuple[str, OpenedMessage | MissingReply]]:
        """One message of a kind to each site, sealed when it is sent; replies opened and checked,
        in the order of `sites`."""
        sent: dict[str, str] = {}

        def make_message(site: str) -> bytes:
            body, tensors = make_content(site)
            raw = seal(kind, self.run, site, body, tensors)
            sent[site] = compute_message_id(raw)
            return raw

        answers = self.link.ask(sites, make_message, patience)
        for site, raw in put_in_order(answers, sites, self.folder.server):
            yield site, self._check_reply(kind, site, sent.get(site, ""), raw)

    def _check_reply(
        self, kind: str, site: str, sent: str, raw: bytes | MissingReply
    ) -> OpenedMessage | MissingReply:
        if isinstance(raw, MissingReply):
            return raw
        try:
            reply = unseal(raw, self.limit)
        except VitrailError as err:
            return self._log_refusal(site, str(err))
        if (reply.run, reply.site, reply.answers) != (self.run, site, sent):
            return self._log_refusal(
                site, f"it answers another message (of {reply.site!r}, run {reply.run!r})"
            )
        if reply.kind == "error":
            said = clean_text(str(reply.body.get("sentence", "nothing")), 500)
            return MissingReply(f"it says: {said}", said=True)
        if reply.kind != kind:
            return self._log_refusal(site, f"it is a {reply.kind!r:.40}, not a {kind!r}")
        return reply

    def _log_refusal(self, site: str, reason: str) -> MissingReply:
        self.folder.log(f"refused a message of {site}: {clean_text(reason)}")
        return MissingReply(clean_text(f"its message was refused: {reason}"))
