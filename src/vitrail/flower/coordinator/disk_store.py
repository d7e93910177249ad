"""Where the contents of Flower's messages wait: files in a folder, not memory."""

from __future__ import annotations

from pathlib import Path

from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore

_DEPTH = 3  # message, records, record


class DiskObjectStore(InMemoryObjectStore):
    """Flower's own store, whose entries keep their bytes in a file each until they are deleted."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def preregister(self, run_id: int, object_tree: ObjectTree) -> list[str]:
        """Take the objects of one of our messages: three, one inside the other. A tree that refers
        to one object many times, level by level, would never be walked to its end."""
        node, depth = object_tree, 1
        while node.children:
            if len(node.children) > 1 or depth >= _DEPTH:
                raise ValueError("this is not the tree of one of our messages")
            node, depth = node.children[0], depth + 1
        return super().preregister(run_id, object_tree)

    def put(self, object_id: str, object_content: bytes) -> None:
        """Check an object as Flower does, then write it to its file."""
        super().put(object_id, object_content)
        with self.lock_store:
            path = self.folder / object_id  # a hash: the parent class has checked it
            if not path.exists():
                path.write_bytes(object_content)
            self.store[object_id].content = b""

    def get(self, object_id: str) -> bytes | None:
        """The bytes of an object; none yet while it is on its way, None if nobody announced it."""
        with self.lock_store:
            entry = self.store.get(object_id)
            if entry is None:
                return None
            return (self.folder / object_id).read_bytes() if entry.is_available else b""

    def delete(self, object_id: str) -> None:
        """Delete an object, what only it referred to, and their files."""
        with self.lock_store:
            super().delete(object_id)
            if object_id not in self.store:
                (self.folder / object_id).unlink(missing_ok=True)
