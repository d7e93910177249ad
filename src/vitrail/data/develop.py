"""Decoding all images of a source into one array of one size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data import cache
from vitrail.data.cache import Decoded
from vitrail.data.decode import Decoder, Header, Payload, UnreadableError, guarded
from vitrail.data.payload import ordered, payloads
from vitrail.data.records import Problem, Record
from vitrail.data.resize import choose_size, fit
from vitrail.data.store import Store, choose


def probe(rows: Sequence[Record], decoder: Decoder, data: Data) -> list[Header | UnreadableError]:
    """The header of every image, or why it has none."""
    with guarded(data.max_pixels):
        return list(ordered(lambda item: decoder.probe(item, data), payloads(rows)))


def develop(
    rows: Sequence[Record], containers: Sequence[Path], decoder: Decoder, data: Data
) -> Decoded:
    """Decode and resize all images, or take them from the cache on disk where it has them.

    What cannot be decoded is left out and told in `problems`; with `data.broken = "stop"` an
    unreadable header ends the work at once, because the caller is going to stop anyway.
    """
    name = cache.digest(rows, containers, data) if data.cache != "memory" else ""
    known = cache.find(name) if name else None
    if known is not None:
        return known
    heads = probe(rows, decoder, data)
    good = [i for i, head in enumerate(heads) if isinstance(head, Header)]
    found = [head for head in heads if isinstance(head, Header)]
    problems = [
        unreadable(row, head) for row, head in zip(rows, heads) if not isinstance(head, Header)
    ]
    if not good or (problems and data.broken == "stop"):
        return _nothing(problems)
    arrays = all(isinstance(rows[i].image, np.ndarray) for i in good)
    side = choose_size(data.image_size, ((h.width, h.height) for h in found), arrays)
    depth = data.channels or (1 if all(h.grey for h in found) else 3)
    shape = (len(good), side, side, depth)
    picked = [rows[i] for i in good]
    if choose(data.cache, int(np.prod(shape))) == "memory":
        store = Store.zeros(shape, np.uint8, "memory")
        return _fill(store, picked, good, found, problems, decoder, data)
    with cache.fresh(shape) as (store, temporary):
        decoded = _fill(store, picked, good, found, problems, decoder, data)
        if not (decoded.problems and data.broken == "stop"):
            cache.keep(name or cache.digest(rows, containers, data), decoded, temporary)
        return decoded


def unreadable(row: Record, error: UnreadableError) -> Problem:
    """An image that cannot be read, as a problem."""
    return Problem(row.name, error.kind, str(error))


def _nothing(problems: list[Problem]) -> Decoded:
    empty = np.zeros((0, 1, 1, 1), np.uint8)
    return Decoded(empty, np.zeros(0, np.int64), np.zeros((0, 2), np.int32), tuple(problems))


def _fill(
    store: Store,
    rows: Sequence[Record],
    positions: Sequence[int],
    heads: Sequence[Header],
    problems: list[Problem],
    decoder: Decoder,
    data: Data,
) -> Decoded:
    """Decode into the store; what fails leaves no gap, because the next image takes its place."""
    array = store.array
    side, depth = array.shape[1], array.shape[3]

    def work(item: Payload) -> npt.NDArray[np.uint8]:
        if isinstance(item, np.ndarray) and item.dtype == np.uint8:
            fits = item.shape in (
                (side, side, depth),
                (side, side, depth)[: 2 if depth == 1 else 3],
            )
            if fits:
                return item.reshape(side, side, depth).astype(np.uint8, copy=False)
        picture = decoder.picture(item, data, side).convert("L" if depth == 1 else "RGB")
        square = fit(picture, side, data.resize)
        return np.asarray(square, np.uint8).reshape(side, side, depth)

    kept: list[int] = []
    with guarded(data.max_pixels):
        for i, result in enumerate(ordered(work, payloads(rows))):
            if isinstance(result, UnreadableError):
                problems.append(unreadable(rows[i], result))
            else:
                array[len(kept)] = result
                kept.append(i)
    sizes = np.array([(heads[i].width, heads[i].height) for i in kept], np.int32).reshape(-1, 2)
    images = store.sealed()[: len(kept)]
    where = np.array([positions[i] for i in kept], np.int64)
    return Decoded(images.astype(np.uint8, copy=False), where, sizes, tuple(problems))
