"""Images that are equal, or nearly: the same picture saved again, resized, or made brighter.

A hash of 63 bits (signs of low frequencies) finds candidates and the correlation of two small grey
pictures decides. The hash alone would not do: radiographs of different patients agree in it, and
so do handwritten digits. How often both err was measured on real images, see
docs/explanation/duplicates.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from vitrail.data.image_set import ImageSet

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Pairs = npt.NDArray[np.int64]  # [P, 2], the smaller row first

MOST_BITS = 6
LEAST_CORRELATION = 0.99
_SIDE = 32
_FREQUENCIES = 8
_BITS = _FREQUENCIES**2 - 1
_BANDS = MOST_BITS + 1  # so many bands cannot all hold one of the bits that differ
_BLOCK = 2048
_NO_PAIRS: Pairs = np.empty((0, 2), np.int64)
_CELLS = 2**22  # of a table of differences, at once


def make_thumbnail(picture: Image.Image) -> Bytes:
    """A picture as 32 x 32 grey values."""
    small = picture.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.uint8)


def find_equal(digests: Iterable[bytes]) -> Ints:
    """For every item the first one with the same digest."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(x, i) for i, x in enumerate(digests)], np.int64)


def digest_pixels(images: Sequence[Bytes] | Bytes) -> Iterator[bytes]:
    """A digest of each image's pixels."""
    for image in images:
        yield hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest()


def find_near_pairs(thumbnails: Bytes) -> Pairs:
    """The pairs of [N, 32, 32] thumbnails that show nearly the same; flat ones show nothing."""
    if len(thumbnails) < 2:
        return _NO_PAIRS
    signs = np.concatenate([_hash(part) for part in _split(thumbnails)])
    flat = thumbnails.reshape(len(thumbnails), -1)
    usable = np.flatnonzero(flat.min(1) != flat.max(1))
    candidates = [usable[pairs] for pairs in _find_close_hashes(signs[usable])]
    pairs = np.unique(np.concatenate([_NO_PAIRS, *candidates]), axis=0)
    alike = [
        _correlate(flat[pairs[at : at + _BLOCK, 0]], flat[pairs[at : at + _BLOCK, 1]])
        for at in range(0, len(pairs), _BLOCK)
    ]
    return pairs[np.concatenate([np.empty(0), *alike]) >= LEAST_CORRELATION]


def _split(rows: Bytes) -> list[Bytes]:
    return [rows[at : at + _BLOCK] for at in range(0, len(rows), _BLOCK)]


def _hash(thumbnails: Bytes) -> npt.NDArray[np.float32]:
    """Signs [N, 63] of the low frequencies against their median; the mean has no say."""
    waves = dctn(thumbnails.astype(np.float32), axes=(1, 2), norm="ortho")
    low = waves[:, :_FREQUENCIES, :_FREQUENCIES].reshape(len(thumbnails), -1)[:, 1:]
    above = low > np.median(low, axis=1, keepdims=True)
    return np.where(above, 1, -1).astype(np.float32)


def _find_close_hashes(signs: npt.NDArray[np.float32]) -> Iterator[Pairs]:
    """Pairs that differ in few bits: such a pair agrees in one band of bits at least, so only rows
    with the same band are compared."""
    width = -(-_BITS // _BANDS)
    for start in range(0, _BITS, width):
        band = signs[:, start : start + width] > 0
        code = band @ (1 << np.arange(band.shape[1]))
        order = np.argsort(code, kind="stable")
        bounds = np.flatnonzero(np.diff(code[order])) + 1
        for rows in np.split(order, bounds):
            yield from _compare_rows(signs, rows)


def _compare_rows(signs: npt.NDArray[np.float32], rows: Ints) -> Iterator[Pairs]:
    if len(rows) < 2:
        return
    block = max(1, _CELLS // len(rows))
    for at in range(0, len(rows), block):
        part = rows[at : at + block]
        differing = (_BITS - signs[part] @ signs[rows].T) / 2
        one, other = np.nonzero(differing <= MOST_BITS + 0.5)
        pairs = np.stack([part[one], rows[other]], axis=1)
        yield pairs[pairs[:, 0] < pairs[:, 1]]


def _correlate(one: Bytes, other: Bytes) -> npt.NDArray[np.float64]:
    """The correlation of the rows of two arrays, one by one."""
    a, b = (x.astype(np.float64) - x.mean(1, keepdims=True) for x in (one, other))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    correlations: npt.NDArray[np.float64] = (a * b).sum(1) / np.maximum(lengths, 1e-9)
    return correlations


def join_groups(count: int, *pairs: Pairs) -> Ints:
    """The number of the group of each of `count` rows, where pairs belong together."""
    links = np.concatenate([_NO_PAIRS, *pairs])
    graph = coo_matrix((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(count, count))
    groups: Ints = connected_components(graph, directed=False)[1].astype(np.int64)
    return groups


def find_groups(images: Bytes) -> tuple[Ints, Ints]:
    """For each of the images [N, H, W, C] the first equal one, and the number of its group of
    equal and nearly equal ones."""
    first = find_equal(digest_pixels(images))
    rows = np.unique(first)
    thumbnails = np.stack([make_thumbnail(_to_picture(images[row])) for row in rows])
    near = rows[find_near_pairs(thumbnails)]
    equal = np.stack([first, np.arange(len(first))], axis=1)
    return first, join_groups(len(first), near, equal)


def _to_picture(pixels: Bytes) -> Image.Image:
    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    return Image.fromarray(np.ascontiguousarray(flat))


def with_groups(images: ImageSet, groups: Ints) -> ImageSet:
    """The set with its groups, if any has two images."""
    several = len(np.unique(groups)) < len(groups)
    return replace(images, groups=groups) if several else images
