"""Decoding all images of a source into one array of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.decoding import image_cache as cache
from vitrail.data.decoding.bit_depth import find_depth, fix_depth
from vitrail.data.decoding.decode import Decoder, Header, Payload, UnreadableError, limit_pixels
from vitrail.data.decoding.image_cache import DecodedImages
from vitrail.data.decoding.payload import map_ordered, read_payloads
from vitrail.data.decoding.resize import choose_size, resize_image
from vitrail.data.records import Problem, Record
from vitrail.data.shared_memory import SharedArray, choose_place


def probe(rows: Sequence[Record], decoder: Decoder, data: Data) -> list[Header | UnreadableError]:
    """The header of every image, or why it has none."""
    with limit_pixels(data.max_pixels):
        return list(map_ordered(lambda item: decoder.probe(item, data), read_payloads(rows)))


def decode_all(
    rows: Sequence[Record], containers: Sequence[Path], decoder: Decoder, data: Data
) -> DecodedImages:
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
    headers = [head for head in heads if isinstance(head, Header)]
    problems = [
        describe_unreadable(row, head)
        for row, head in zip(rows, heads)
        if not isinstance(head, Header)
    ]
    if not good or (problems and data.broken == "stop"):
        return _make_empty(problems)
    arrays = all(isinstance(rows[i].image, np.ndarray) for i in good)
    side = choose_size(data.image_size, ((h.width, h.height) for h in headers), arrays)
    depth = data.channels or (1 if all(h.grey for h in headers) else 3)
    shape = (len(good), side, side, depth)
    picked = [rows[i] for i in good]
    with limit_pixels(data.max_pixels):
        deep = find_depth(picked, headers, decoder, data)
    exact, bits = fix_depth(data, deep), None if deep is None else deep.bits
    if choose_place(data.cache, int(np.prod(shape))) == "memory":
        store = SharedArray.zeros(shape, np.uint8, "memory")
        return replace(_fill(store, picked, good, headers, problems, decoder, exact), bits=bits)
    with cache.open_temporary(shape) as (store, temporary):
        decoded = _fill(store, picked, good, headers, problems, decoder, exact)
        decoded = replace(decoded, bits=bits)
        if not (decoded.problems and data.broken == "stop"):
            cache.keep(name or cache.digest(rows, containers, data), decoded, temporary)
        return decoded


def describe_unreadable(row: Record, error: UnreadableError) -> Problem:
    """An image that cannot be read, as a problem."""
    return Problem(row.name, error.kind, str(error))


def _make_empty(problems: list[Problem]) -> DecodedImages:
    empty = np.zeros((0, 1, 1, 1), np.uint8)
    return DecodedImages(empty, np.zeros(0, np.int64), np.zeros((0, 2), np.int32), tuple(problems))


def _fill(
    store: SharedArray,
    rows: Sequence[Record],
    positions: Sequence[int],
    heads: Sequence[Header],
    problems: list[Problem],
    decoder: Decoder,
    data: Data,
) -> DecodedImages:
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
        square = resize_image(picture, side, data.resize)
        return np.asarray(square, np.uint8).reshape(side, side, depth)

    kept: list[int] = []
    with limit_pixels(data.max_pixels):
        for i, result in enumerate(map_ordered(work, read_payloads(rows))):
            if isinstance(result, UnreadableError):
                problems.append(describe_unreadable(rows[i], result))
            else:
                array[len(kept)] = result
                kept.append(i)
    sizes = np.array([(heads[i].width, heads[i].height) for i in kept], np.int32).reshape(-1, 2)
    images = store.as_read_only()[: len(kept)]
    where = np.array([positions[i] for i in kept], np.int64)
    return DecodedImages(images.astype(np.uint8, copy=False), where, sizes, tuple(problems))
