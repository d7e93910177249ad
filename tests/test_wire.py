"""Messages survive the wire to the bit; anything else is refused with one kind of error."""

import hashlib
import json
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from vitrail.rng import derive_server_key
from vitrail.wire import WireError, decode, encode

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8)
KEY = derive_server_key(6)


def tensors():
    found = {}
    for dtype in DTYPES:
        for shape in ((), (0,), (3, 0, 2), (1,), (5, 4), (2, 3, 4, 5)):
            value = torch.randint(0, 200, shape, generator=KEY.torch()).to(dtype)
            found[f"{dtype} {shape} é"] = value
    found["specials"] = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    found["not contiguous"] = torch.arange(12).view(3, 4).T
    return found


def test_round_trip_of_every_type_and_shape():
    header = {"round": 3, "name": "Klinik Süd", "nested": {"a": [1, None, 0.1]}}
    sent = tensors()
    found, back = decode(encode(header, sent))
    assert found == header and list(back) == list(sent)
    for name, tensor in sent.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape
        same = (
            torch.equal(back[name].nan_to_num(7), tensor.nan_to_num(7))
            if tensor.is_floating_point()
            else True
        )
        assert (
            same and back[name].numpy().tobytes() == np.ascontiguousarray(tensor.numpy()).tobytes()
        )
        if tensor.numel():
            back[name].zero_()  # what arrived is ours to write
    assert decode(bytearray(encode({}, {}))) == ({}, {})


def test_a_type_that_does_not_travel_is_named():
    with pytest.raises(WireError, match=r"'c'.*complex"):
        encode({}, {"c": torch.ones(1, dtype=torch.complex64)})


def test_two_thousand_mutations_are_refused():
    raw = encode({"round": 1}, {"w": torch.arange(40.0), "e": torch.empty(0)})
    draw = KEY.at("mutations").numpy()
    for i in range(2000):
        broken = bytearray(raw)
        kind = i % 5
        if kind == 0:
            broken[draw.integers(len(raw))] ^= 1 << draw.integers(8)
        elif kind == 1:
            del broken[draw.integers(len(raw)) :]
        elif kind == 2:
            broken += draw.bytes(draw.integers(1, 40))
        elif kind == 3:
            broken = bytearray(draw.bytes(draw.integers(0, 200)))
        else:
            at = draw.integers(len(raw))
            broken[at : at + draw.integers(1, 30)] = draw.bytes(draw.integers(0, 30))
        if bytes(broken) != raw:
            with pytest.raises(WireError):
                decode(bytes(broken))


def forged(index, payload=b"", header=None, text=None):
    """A message with a right digest and a lying index, as a hostile peer would send."""
    text = json.dumps({"header": header or {}, "tensors": index}).encode() if text is None else text
    body = struct.pack("<4sHIQ", b"VTRL", 1, len(text), len(payload)) + text + payload
    return body + hashlib.blake2b(body, digest_size=16).digest()


LIES = {
    "longer than the message": forged([["w", "f4", [2**40]]]),
    "empty but endless": forged([["w", "f4", [0, 2**62, 2**62]]]),
    "beyond 64 bits": forged([["w", "f4", [2**70, 0]]]),
    "negative": forged([["w", "f4", [-1]]]),
    "fractional": forged([["w", "f4", [1.5]]]),
    "many dimensions": forged([["w", "f4", [1] * 5000]], b"\0" * 4),
    "unknown type": forged([["w", "object", [1]]], b"\0" * 8),
    "type is a list": forged([["w", ["f4"], [1]]], b"\0" * 4),
    "name is no text": forged([[3, "f4", [1]]], b"\0" * 4),
    "described twice": forged([["w", "f4", [1]], ["w", "f4", [1]]], b"\0" * 8),
    "bytes nobody claims": forged([["w", "f4", [1]]], b"\0" * 9),
    "index is a number": forged(3),
    "entry is too short": forged([["w"]]),
    "no index": forged(None, text=b'{"header": {}}'),
    "a list": forged(None, text=b"[]"),
    "header is a list": forged([], text=b'{"header": [], "tensors": []}'),
    "no JSON": forged(None, text=b"\xff\xfe"),
    "deep": forged(None, text=b"[" * 100_000 + b"]" * 100_000),
    "endless number": forged(
        [["w", "f4", 1]], text=b'{"header": {}, "tensors": [["w", "f4", [' + b"9" * 5000 + b"]]]}"
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_sizes_are_refused_without_the_memory(lie):
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(LIES[lie])
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_header_longer_than_allowed_and_limits():
    raw = encode({}, {"w": torch.ones(100)})
    with pytest.raises(WireError, match="limit"):
        decode(raw, limit=len(raw) - 1)
    decode(raw, limit=len(raw))
    with pytest.raises(WireError):
        decode(struct.pack("<4sHIQ", b"VTRL", 1, 2**32 - 1, 2**63) + b"\0" * 64)
