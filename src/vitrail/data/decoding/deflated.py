"""How large a deflated DICOM file would become, found out without keeping it: a small file can
hold gigabytes."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import BinaryIO

from vitrail.data.decoding.decode import UnreadableError

MOST_BYTES = 256 * 2**20  # of a whole file, inflated
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_HEAD, _PIECE = 144, 2**20


def refuse_inflated(payload: Path | bytes, most: int = MOST_BYTES) -> None:
    """Refuse a deflated file that would take more memory than a bound."""
    with io.BytesIO(payload) if isinstance(payload, bytes) else payload.open("rb") as source:
        head = source.read(_HEAD)
        length = int.from_bytes(head[140:144], "little")
        if head[132:136] != b"\x02\x00\x00\x00" or length > _PIECE:
            return  # no length of the header: pydicom refuses what is not DICOM
        if _DEFLATED in source.read(length) and _inflate(source, most) > most:
            raise UnreadableError(f"is deflated, and larger than {most // 2**20} MB when opened")


def _inflate(source: BinaryIO, most: int) -> int:
    """The bytes of a raw deflate stream, counted up to a bound."""
    stream, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
    while total <= most and not stream.eof:
        packed = stream.unconsumed_tail or source.read(_PIECE)
        if not packed:
            break
        try:
            total += len(stream.decompress(packed, _PIECE))
        except zlib.error:
            break  # damaged: pydicom says how
    return total
