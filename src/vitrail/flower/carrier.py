"""Our bytes inside Flower's messages: packed into objects, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

RECORD, RAW = "vitrail", "raw"
NOT_LET_IN = (401, 412)
"""What Flower answers a node: no valid signature; a key that is unknown, or is there already."""


def wrap_bytes(raw: bytes) -> RecordDict:
    """Our bytes as the content of a Flower message."""
    return RecordDict({RECORD: ConfigRecord({RAW: raw})})


def unwrap_bytes(message: Message) -> bytes | None:
    """Our bytes from a Flower message, or None if it has none."""
    record = message.content.get(RECORD) if message.has_content() else None
    raw = record.get(RAW) if isinstance(record, ConfigRecord) else None
    return raw if isinstance(raw, bytes) else None


def pack_message(message: Message) -> tuple[ObjectTree, dict[str, bytes]]:
    """Give a message its id, which names its content; the tree of its objects, and their bytes."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = {name: one.deflate() for name, one in get_all_nested_objects(message).items()}
        return get_object_tree(message), objects


def fetch_objects(
    tree: ObjectTree, fetch: Callable[[str], bytes | None]
) -> dict[str, bytes] | None:
    """All objects of a tree, or None while one of them is still on its way."""
    objects: dict[str, bytes] = {}
    for node in iterate_object_tree(tree):
        content = fetch(node.object_id)
        if not content:
            return None
        objects[node.object_id] = content
    return objects


def unpack_message(message_id: str, objects: Mapping[str, bytes]) -> Message:
    """A message out of its objects."""
    message = inflate_object_from_contents(message_id, dict(objects))
    if not isinstance(message, Message):
        raise ValueError("this is no message")
    message.metadata.__dict__["_message_id"] = message_id
    return message
