"""Flower's state, with less trust in nodes: replies only, one a question, one content a reply."""

from __future__ import annotations

from flwr.app import Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState


class GuardedLinkState(InMemoryLinkState):
    """Flower's own state in memory. There a node may announce contents again and again under the
    name of one reply, and send them all; here the first counts, and it is the reply's own. There
    a node may also leave a message for anybody and say that the coordinator wrote it."""

    def leave_message(
        self, message: Message, object_tree: ObjectTree, session_id: str
    ) -> tuple[bool, list[str]]:
        """Store a message of the coordinator itself; nothing on the network leads here."""
        return super().store_message_and_object_tree(message, object_tree, session_id)

    def store_message_and_object_tree(
        self, message: Message, object_tree: ObjectTree, session_id: str
    ) -> tuple[bool, list[str]]:
        """Store what a node sends if it is a reply, its content is named as it is, and nobody
        announced it before."""
        message_id = message.metadata.message_id
        is_reply = bool(message.metadata.reply_to_message_id)
        is_named = object_tree.object_id == message_id
        stored: bool = False
        missing: list[str] = []
        with self.lock:
            try:
                if is_reply and is_named and message_id not in self.message_res_store:
                    stored, missing = super().store_message_and_object_tree(
                        message, object_tree, session_id
                    )
            finally:
                if not stored:  # Flower would remember the session, and never end it
                    self._cleanup_push_session(session_id, cleanup_messages=False)
        return stored, missing

    def find_reply(self, message_id: str) -> str | None:
        """The name of the reply to a message, if one was announced."""
        with self.lock:
            return self.message_ins_id_to_message_res_id.get(message_id)
