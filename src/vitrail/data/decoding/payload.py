"""From references to pixels: what a decoder is handed, in order and never all at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.data.decoding.decode import Payload, UnreadableError
from vitrail.data.records import ParquetImage, Record
from vitrail.errors import DataError

T = TypeVar("T")

_BATCH = 64
_CHUNK = 16


def read_payloads(rows: Sequence[Record]) -> Iterator[Payload]:
    """The pixels of each record, in order; Parquet files are streamed, never read as a whole."""
    position = 0
    while position < len(rows):
        image = rows[position].image
        if isinstance(image, ParquetImage):
            run = _consecutive_rows(rows, position)
            yield from _stream(image, run)
            position += len(run)
        else:
            yield image
            position += 1


def _consecutive_rows(rows: Sequence[Record], start: int) -> list[int]:
    """The ascending rows of one Parquet file that follow each other from `start` on."""
    first = rows[start].image
    run: list[int] = []
    for record in rows[start:]:
        image = record.image
        if not isinstance(image, ParquetImage) or not isinstance(first, ParquetImage):
            break
        if image.file != first.file or (run and image.row <= run[-1]):
            break
        run.append(image.row)
    return run


def _stream(first: ParquetImage, wanted: list[int]) -> Iterator[Payload]:
    """The images at ascending rows of one Parquet file; row groups without any are not read."""
    ascending = np.asarray(wanted)
    try:
        with pq.ParquetFile(first.file, memory_map=True) as file:
            start = 0
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                low, high = np.searchsorted(ascending, [start, end])
                if low < high:
                    yield from _group(file, group, first, ascending[low:high] - start)
                start = end
    except (pa.ArrowException, OSError) as err:
        raise DataError(f"the Parquet file cannot be read ({err})", where=str(first.file)) from err


def _group(file: Any, group: int, first: ParquetImage, wanted: Any) -> Iterator[Payload]:
    seen = 0
    for batch in file.iter_batches(_BATCH, row_groups=[group], columns=[first.column]):
        column = batch.column(0)
        low, high = np.searchsorted(wanted, [seen, seen + len(column)])
        for row in wanted[low:high]:
            yield _cell(column[int(row) - seen].as_py(), first)
        seen += len(column)


def _cell(value: Any, first: ParquetImage) -> Payload:
    """Bytes, or for a struct without bytes the file beside the Parquet file that it names."""
    if isinstance(value, dict):
        if not value.get("bytes") and value.get("path"):
            return first.file.parent / str(value["path"])
        value = value.get("bytes")
    return value if isinstance(value, bytes) else b""


def map_ordered(
    work: Callable[[Payload], T], items: Iterable[Payload]
) -> Iterator[T | UnreadableError]:
    """`work` on every item by a few threads; results come in order, one batch at a time.

    Rows of arrays need no decoding, so for them a thread would only be in the way.
    """
    stream = iter(items)
    threads = min(8, os.cpu_count() or 1)

    def attempt(item: Payload) -> T | UnreadableError:
        try:
            return work(item)
        except UnreadableError as err:
            return err

    def attempt_all(some: list[Payload]) -> list[T | UnreadableError]:
        return [attempt(item) for item in some]

    with ThreadPoolExecutor(max_workers=threads) as pool:
        while batch := list(islice(stream, _CHUNK * threads)):
            if all(isinstance(item, np.ndarray) for item in batch):
                yield from map(attempt, batch)
                continue
            chunks = [batch[i : i + _CHUNK] for i in range(0, len(batch), _CHUNK)]
            for results in pool.map(attempt_all, chunks):
                yield from results
