"""Flower's state as a link: sites by the name their key was registered under."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.proto.node_pb2 import NodeInfo

from vitrail.engine.tasks import MissingReply
from vitrail.flower.carrier import (
    fetch_objects,
    pack_message,
    unpack_message,
    unwrap_bytes,
    wrap_bytes,
)
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.link import Answered, MakeMessage
from vitrail.flower.pauses import choose_pause
from vitrail.flower.plain_text import clean_text

_ONLINE = "online"
_ASK_AGAIN_SECONDS = 1.0
_WHO_SECONDS = 600.0
_GONE_SECONDS = 60.0  # for a node that was lost in the middle of a turn to come back


@dataclass
class _Question:
    """A message that waits for its answer: whose it is, since when its node is there, and the
    reply that Flower hands out once, whose parts may still be on their way. `lost` is when its
    node was found to be gone."""

    site: str
    node: int
    activated: str
    reply: Message | None = None
    lost: float | None = None


class FleetLink:
    """Messages over a running `FleetServer`.

    With node keys a node's name is the one its key was registered under, so a site cannot speak
    for another. An insecure federation asks its nodes who they are; of two that claim one name the
    first is heard. A node that comes back while it is waited for is asked again.
    """

    def __init__(self, server: FleetServer) -> None:
        self.server = server
        self._names = server.names
        self._unnamed: dict[str, _Question] = {}

    def present(self) -> tuple[str, ...]:
        """The sites whose nodes are online."""
        return tuple(sorted(self._find_nodes()))

    def ask(
        self, sites: Sequence[str], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        """Send to every site, then hear them in the order in which they answer; a reply counts
        only if it comes from the node that was asked."""
        deadline = time.monotonic() + patience
        nodes = self._find_nodes()
        waiting: dict[str, _Question] = {}
        for site in sites:
            if site not in nodes:
                yield site, MissingReply("it is not connected")
                continue
            waiting[self._push(nodes[site], make_message(site), patience)] = _Question(
                site, nodes[site], self._get_activation(nodes[site])
            )
        try:
            yield from self._hear(waiting, make_message, deadline)
            for question in waiting.values():
                yield question.site, MissingReply("it was too late")
        finally:
            for message_id in waiting:
                self._forget(message_id)

    def _hear(
        self, waiting: dict[str, _Question], make_message: MakeMessage, deadline: float
    ) -> Iterator[Answered]:
        """The answers that come before a deadline; whoever is still in `waiting` gave none."""
        checked = heard = time.monotonic()
        while waiting and time.monotonic() < deadline:
            before = len(waiting)
            yield from self._pull(waiting)
            if time.monotonic() - checked > _ASK_AGAIN_SECONDS:
                checked = time.monotonic()
                yield from self._ask_again(waiting, make_message, deadline - checked)
            if len(waiting) == before:
                time.sleep(choose_pause(time.monotonic() - heard))
            else:
                heard = time.monotonic()

    def _forget(self, message_id: str) -> None:
        """Delete a message, its reply, and the contents of both, whether or not they are whole."""
        state = self.server.state
        reply_id = state.find_reply(message_id)
        state.delete_messages(message_ins_ids={message_id})
        for object_id in (message_id, reply_id):
            if object_id is not None:
                state.object_store.delete(object_id)

    def _ask_again(
        self, waiting: dict[str, _Question], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        """A node that was started anew has lost what it was asked; one that was silent for a while
        is heard again; one that stays away is given up, and one whose key was revoked too."""
        self.server.refresh_names()
        for message_id, question in list(waiting.items()):
            if question.node not in self._names:
                del waiting[message_id]
                self._forget(message_id)
                yield question.site, MissingReply("its key is no longer accepted")
                continue
            activated = self._get_activation(question.node)
            if activated != question.activated and patience > 0:
                del waiting[message_id]
                self._forget(message_id)
                again = self._push(question.node, make_message(question.site), patience)
                waiting[again] = _Question(question.site, question.node, activated)
            elif question.lost is not None and self._is_online(question.node):
                question.lost = None
            elif question.lost is not None and time.monotonic() - question.lost > _GONE_SECONDS:
                del waiting[message_id]
                self._forget(message_id)
                yield question.site, MissingReply("its connection was lost")

    def _find_nodes(self) -> dict[str, int]:
        """The nodes that are online, by the names of their sites; the roll may have changed."""
        self.server.refresh_names()
        state = self.server.state
        infos = state.get_node_info(node_ids=list(state.get_nodes(self.server.run_id)))
        online = [info.node_id for info in infos if info.status in (_ONLINE, "")]
        if self.server.keys is None:
            self._ask_names([node for node in online if node not in self._names])
        nodes: dict[str, int] = {}
        for node in online:
            if (name := self._names.get(node)) is not None:
                nodes.setdefault(name, node)
        return nodes

    def _ask_names(self, nodes: Sequence[int]) -> None:
        """Nodes without keys say who they are: an empty message is answered with a name. Each is
        asked once an activation; a name that has not come yet is there at a later look."""
        asked = {(question.node, question.activated) for question in self._unnamed.values()}
        for node in nodes:
            activated = self._get_activation(node)
            if (node, activated) not in asked:
                question = _Question(str(node), node, activated)
                self._unnamed[self._push(node, b"", _WHO_SECONDS)] = question
        for node_name, raw in self._pull(self._unnamed):
            if isinstance(raw, bytes):
                self._names[int(node_name)] = raw.decode(errors="replace")

    def _is_online(self, node: int) -> bool:
        return any(info.status == _ONLINE for info in self._get_infos(node))

    def _get_activation(self, node: int) -> str:
        infos = self._get_infos(node)
        return str(infos[0].last_activated_at) if infos else ""

    def _get_infos(self, node: int) -> Sequence[NodeInfo]:
        infos: Sequence[NodeInfo] = self.server.state.get_node_info(node_ids=[node])
        return infos

    def _push(self, node: int, raw: bytes, patience: float) -> str:
        """Leave a message for a node in Flower's state; its id."""
        message = Message(
            wrap_bytes(raw), dst_node_id=node, message_type="train", ttl=patience + 60.0
        )
        self.server.note_message(len(raw))
        tree, objects = pack_message(message)
        state, run = self.server.state, self.server.run_id
        session = state.start_session(run)
        bare = remove_content_from_message(message)
        _, missing = state.leave_message(bare, tree, session)
        for object_id in missing:
            state.store_object(run, session, object_id, objects[object_id])
        return str(message.metadata.message_id)

    def _pull(self, waiting: dict[str, _Question]) -> Iterator[Answered]:
        """Replies that are there in full; those that were heard wait no longer."""
        state, run = self.server.state, self.server.run_id
        there = {name for name, question in waiting.items() if question.lost is None}
        for reply in state.get_message_res(message_ids=there, run_id=run):
            waiting[reply.metadata.reply_to_message_id].reply = reply
        for message_id, question in list(waiting.items()):
            if question.reply is None:
                continue
            if question.reply.has_error():  # Flower's word for a node that is gone
                state.object_store.delete(question.reply.metadata.message_id)
                question.reply, question.lost = None, time.monotonic()
                continue
            reply_id = question.reply.metadata.message_id
            answer = self._read(reply_id, question.node)
            if answer is not None:
                del waiting[message_id]
                self._forget(message_id)
                yield question.site, answer

    def _read(self, reply_id: str, node: int) -> bytes | MissingReply | None:
        """What a reply holds; None while parts of it are on their way."""
        state, run = self.server.state, self.server.run_id
        try:
            tree = state.object_store.get_object_tree(reply_id)
            objects = fetch_objects(tree, lambda object_id: state.get_object(run, object_id))
            if objects is None:
                return None
            reply = unpack_message(reply_id, objects)
        except Exception as err:  # whatever Flower makes of a site's bytes costs that site alone
            return MissingReply(clean_text(f"its message cannot be read ({err!r:.200})"))
        raw = unwrap_bytes(reply)
        if raw is None or reply.metadata.src_node_id != node:
            return MissingReply("its message holds nothing of ours")
        return raw
