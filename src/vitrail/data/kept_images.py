"""Images that a grid reads once: its cells differ in everything but the images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.image_set import ImageSet
from vitrail.data.records import Problem
from vitrail.rng import Key

Loaded = tuple[ImageSet, list[Problem]]


@dataclass
class _Kept:
    """The images that were read last; one set at a time, so that memory does not grow."""

    name: object = None
    loaded: Loaded | None = field(default=None)


_KEPT: ContextVar[_Kept | None] = ContextVar("kept images", default=None)


@contextmanager
def keep_images() -> Iterator[None]:
    """Inside the block, images that are asked for again in a row are those that were read."""
    token = _KEPT.set(_Kept())
    try:
        yield
    finally:
        _KEPT.reset(token)


def load_kept(data: Data, base: Path, key: Key, load: Callable[[], Loaded]) -> Loaded:
    """What `load` returns, or what it returned for the same section, draws and unchanged file.

    Kept arrays are read-only: a cell that wrote into them would change the next one's images.
    """
    kept = _KEPT.get()
    if kept is None:
        return load()
    name = (data.model_dump_json(), key, base.resolve(), _sign(data, base))
    if kept.loaded is None or kept.name != name:
        kept.loaded = None  # before the next set is read, not beside it
        kept.loaded, kept.name = load(), name
        for array in (kept.loaded[0].images, kept.loaded[0].labels):
            array.setflags(write=False)
    images, problems = kept.loaded
    return images, list(problems)


def _sign(data: Data, base: Path) -> tuple[int, int] | None:
    """When the file or folder was changed, and how long it is."""
    if data.path is None:
        return None
    path = base / Path(data.path).expanduser()
    if not path.exists():
        return None
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size
