"""What an image was before anything was done to it: the bytes of its file, or its stored array."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import Payload
from vitrail.data.decoding.payload import read_payloads
from vitrail.data.image_set import Array, ImageSet
from vitrail.data.load_images import read_source
from vitrail.data.records import Records
from vitrail.rng import Key


def read_original_bytes(
    images: ImageSet, rows: npt.NDArray[np.int64], data: Data, base: Path, key: Key
) -> Iterator[bytes]:
    """The original of each row, in order, whatever size the images were read with. A source that
    draws its images has none: there the pixels are."""
    found = None if images.places is None else read_source(data, base, key)
    if not isinstance(found, Records) or images.places is None:
        for row in rows.tolist():
            yield _write_array(images.images[row])
        return
    records = [found.rows[place] for place in images.places[rows].tolist()]
    for payload in read_payloads(records):
        yield _write_payload(payload)


def _write_payload(payload: Payload) -> bytes:
    if isinstance(payload, Path):
        return payload.read_bytes()
    return payload if isinstance(payload, bytes) else _write_array(payload)


def _write_array(array: Array) -> bytes:
    """Shape and pixels; a gray image is the same with and without a dimension for its channel."""
    shape: Sequence[int] = array.shape if array.ndim == 3 else (*array.shape, 1)
    return json.dumps(list(shape)).encode() + np.ascontiguousarray(array).tobytes()
