"""One message as bytes: magic, version, sizes, JSON header, tensors, digest."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import VitrailError

MAGIC = b"VTRL"
VERSION = 1
MAX_HEADER = 64 * 2**20
_HEAD = struct.Struct("<4sHIQ")
_DIGEST = 16
_MAX_DIMENSIONS = 32
_DTYPES = {
    "f4": torch.float32,
    "f8": torch.float64,
    "i8": torch.int64,
    "i4": torch.int32,
    "u1": torch.uint8,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class WireError(VitrailError):
    """Bytes that are not a message of ours."""


def encode(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """A header and named tensors as one message."""
    index, parts = [], []
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous()
        if flat.dtype not in _NAMES:
            raise WireError(f"tensor {name!r} has a type that does not travel ({flat.dtype})")
        index.append([name, _NAMES[flat.dtype], list(flat.shape)])
        parts.append(flat.numpy().data.cast("B") if flat.numel() else b"")
    text = json.dumps({"header": header, "tensors": index}).encode()
    payload = sum(len(part) for part in parts)
    head = _HEAD.pack(MAGIC, VERSION, len(text), payload)
    digest = hashlib.blake2b(head + text, digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return b"".join([head, text, *parts, digest.digest()])


def decode(
    raw: bytes | bytearray, limit: int | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a message back; anything that is not exactly one whole message is refused."""
    if limit is not None and len(raw) > limit:
        raise WireError(f"a message of {len(raw)} bytes is over the limit of {limit}")
    if len(raw) < _HEAD.size + _DIGEST:
        raise WireError("the message is cut off")
    magic, version, length, payload = _HEAD.unpack_from(raw)
    if magic != MAGIC or version != VERSION:
        raise WireError("this is not a message of this version")
    if length > MAX_HEADER or len(raw) != _HEAD.size + length + payload + _DIGEST:
        raise WireError("the sizes in the message do not match its length")
    body = memoryview(raw)[:-_DIGEST]
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != bytes(raw[-_DIGEST:]):
        raise WireError("the digest does not match: the message was changed on the way")
    try:
        text = json.loads(bytes(body[_HEAD.size : _HEAD.size + length]))
        if not isinstance(text["header"], dict):
            raise ValueError("it is no table")
        return text["header"], _tensors(text["tensors"], body[_HEAD.size + length :])
    except (ValueError, KeyError, TypeError, OverflowError, RuntimeError) as err:
        raise WireError(f"the header cannot be read ({err!s:.200})") from err


def _tensors(index: list[Any], payload: memoryview) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    at = 0
    for name, code, shape in index:
        dtype = _DTYPES[code]
        if (
            not isinstance(name, str)
            or name in found
            or len(shape) > _MAX_DIMENSIONS
            or any(not isinstance(n, int) or n < 0 for n in shape)
        ):
            raise ValueError("a tensor is described twice or has no valid shape")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if at + size > len(payload):
            raise ValueError("the tensors are longer than the message")
        part = bytearray(payload[at : at + size])
        found[name] = (
            torch.frombuffer(part, dtype=dtype).view(shape)
            if size
            else torch.empty(shape, dtype=dtype)
        )
        at += size
    if at != len(payload):
        raise ValueError("the message holds bytes that no tensor claims")
    return found
