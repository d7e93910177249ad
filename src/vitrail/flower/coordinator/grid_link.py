"""Flower's grid as a link: sites by the name their key was registered under."""

from __future__ import annotations

import time
from collections.abc import Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from vitrail.engine.tasks import MissingReply

RECORD, RAW = "vitrail", "raw"
_ONLINE = "online"
_POLL_SECONDS = 0.5


def wrap_bytes(raw: bytes) -> RecordDict:
    """Our bytes as the content of a Flower message."""
    return RecordDict({RECORD: ConfigRecord({RAW: raw})})


def unwrap_bytes(message: Message) -> bytes | None:
    """Our bytes from a Flower message, or None if it has none."""
    record = message.content.get(RECORD) if message.has_content() else None
    raw = record.get(RAW) if isinstance(record, ConfigRecord) else None
    return raw if isinstance(raw, bytes) else None


class GridLink:
    """Messages over a running SuperLink.

    With node authentication a node's name is the one its public key was registered under, so a
    site cannot speak for another. An `insecure` federation asks its nodes who they are.
    """

    def __init__(self, grid: Grid, insecure: bool = False) -> None:
        self.grid = grid
        self.insecure = insecure
        self._asked: dict[int, str] = {}

    def present(self) -> tuple[str, ...]:
        """The sites whose nodes are online."""
        return tuple(sorted(self._nodes()))

    def _nodes(self) -> dict[str, int]:
        nodes = [node for node in self.grid.get_nodes() if node.status in (_ONLINE, "")]
        if not self.insecure:
            return {node.name: node.node_id for node in nodes if node.name}
        strangers = [n.node_id for n in nodes if n.node_id not in self._asked]
        if strangers:
            for reply in self._send(dict.fromkeys(strangers, b""), 120.0):
                raw = unwrap_bytes(reply)
                if raw is not None:
                    self._asked[reply.metadata.src_node_id] = raw.decode(errors="replace")
        by_name: dict[str, int] = {}
        for node in nodes:  # of two nodes that claim one name, the first is heard
            if node.node_id in self._asked:
                by_name.setdefault(self._asked[node.node_id], node.node_id)
        return by_name

    def ask(
        self, messages: Mapping[str, bytes], patience: float
    ) -> dict[str, bytes | MissingReply]:
        """Send and wait; a reply counts only if it comes from the node that was asked."""
        nodes = self._nodes()
        replies: dict[str, bytes | MissingReply] = {
            name: MissingReply("it is not connected" if name not in nodes else "it was too late")
            for name in messages
        }
        names = {nodes[name]: name for name in messages if name in nodes}
        sent = {node: messages[name] for node, name in names.items()}
        for reply in self._send(sent, patience) if sent else ():
            name = names.get(reply.metadata.src_node_id)
            if name is None:
                continue
            raw = unwrap_bytes(reply)
            if raw is not None:
                replies[name] = raw
            elif reply.has_error():
                replies[name] = MissingReply(f"it failed ({reply.error.reason:.200})")
            else:
                replies[name] = MissingReply("its message holds nothing of ours")
        return replies

    def _send(self, raw: Mapping[int, bytes], patience: float) -> list[Message]:
        messages = [
            Message(
                wrap_bytes(content), dst_node_id=node, message_type="train", ttl=patience + 60.0
            )
            for node, content in raw.items()
        ]
        waiting = set(self.grid.push_messages(messages))
        answers: list[Message] = []
        deadline = time.monotonic() + patience
        while waiting:  # Flower's own wait looks every 3 s
            replies = list(self.grid.pull_messages(waiting))
            answers += replies
            waiting -= {reply.metadata.reply_to_message_id for reply in replies}
            if time.monotonic() > deadline:
                break
            if waiting:
                time.sleep(_POLL_SECONDS)
        return answers
