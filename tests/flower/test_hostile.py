"""What a hostile site can send: 5,000 changed messages and 5,000 lies, and none gets in."""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch

from vitrail.aggregate.sums import Aggregator
from vitrail.config.schema import Aggregate
from vitrail.engine.tasks import MissingReply, Reply
from vitrail.flower.coordinator.remote_sites import MessageSender, RemotePool
from vitrail.flower.envelope import MAX_HEADER_BYTES, compute_message_id, seal, unseal
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key
from vitrail.secure_aggregation.masking import MASKED
from vitrail.secure_aggregation.secure_sum import MaskedSum, masked_schema

MANY = 5000
OPTIONS = Aggregate()
SCHEMA = Schema(
    (),
    (
        Field("model/w", (4, 3)),
        Field("model/b", (4,), rule="uniform"),
        Field("model/u", (2, 5, 2), rule="grassmann", geometry="grassmann"),
        Field("counts/n", (3,), bound=100.0),
    ),
    metrics=("loss", "accuracy"),
)
SENT = {
    "model/w": torch.ones(4, 3),
    "model/b": torch.zeros(4),
    "model/u": torch.eye(5)[:, :2].expand(2, 5, 2).contiguous(),
}
EXPECTED = ("north", 3, "train")
RAW = seal("turn", "run", "north", {"task": 1})


class Book:
    """Counts what is logged, and how long the longest line is."""

    def __init__(self) -> None:
        self.lines = self.longest = 0

    def log(self, text: str) -> None:
        self.lines, self.longest = self.lines + 1, max(self.longest, len(text))


def honest() -> Reply:
    tensors = {**SENT, "counts/n": torch.ones(3)}
    update = Update(*EXPECTED, tensors, {"examples": 20, "steps": 5}, {"loss": 0.5})
    return Reply(update, kept=True, signature="ab")


def sealed(**changes: Any) -> bytes:
    """The honest reply with some words of its envelope, body or tensors changed."""
    reply = honest()
    head = {"kind": "turn", "run": "run", "site": "north", "answers": compute_message_id(RAW)}
    head |= {k: v for k, v in changes.items() if k in head}
    body = {**reply.header(), **changes.get("body", {})}
    for name in changes.get("without", ()):
        del body[name]
    tensors = changes.get("tensors", reply.update.tensors)
    return seal(head["kind"], head["run"], head["site"], body, tensors, head["answers"])


def arrives(raw: bytes, book: Book, total: Aggregator | MaskedSum) -> str | None:
    """The way of a reply at the coordinator; the reason it was refused, None if it got in."""
    post = MessageSender(None, "run", SCHEMA.bytes_up + MAX_HEADER_BYTES, book)
    reply = RemotePool(post, 1.0, False)._read_reply(
        post._check_reply("turn", "north", compute_message_id(RAW), raw)
    )
    if isinstance(reply, MissingReply):
        return reply.reason
    limits = {"steps": 50}
    return reply.withheld or total.offer(reply.update, 20.0, EXPECTED, limits)


def secure() -> MaskedSum:
    return MaskedSum(SCHEMA, SENT, OPTIONS, {"north": 1.0, "west": 1.0})


@pytest.fixture
def bounded():
    """The process grows by less than 64 MB, whatever the messages claim."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_the_honest_message_gets_in() -> None:
    total = Aggregator(SCHEMA, SENT, OPTIONS)
    assert arrives(sealed(), Book(), total) is None and total.accepted == 1


def test_every_mutated_message_is_refused(bounded) -> None:
    """Any byte flipped, dropped or added, a run of bytes moved, two fields swapped."""
    raw, draw = sealed(), derive_server_key(7).at("mutations").numpy()
    total, book, tried = Aggregator(SCHEMA, SENT, OPTIONS), Book(), 0
    while tried < MANY:
        changed, at = bytearray(raw), int(draw.integers(len(raw)))
        kind = tried % 5
        if kind == 0:
            changed[at] ^= 1 << int(draw.integers(8))
        elif kind == 1:
            del changed[at]
        elif kind == 2:
            changed.insert(at, int(draw.integers(256)))
        elif kind == 3:
            piece = changed[at : at + 8]
            del changed[at : at + 8]
            to = int(draw.integers(len(changed)))
            changed[to:to] = piece
        else:
            other, size = int(draw.integers(len(raw))), 4
            one, two = changed[at : at + size], changed[other : other + size]
            if len(one) == len(two) == size and abs(at - other) >= size:
                changed[at : at + size], changed[other : other + size] = two, one
        if bytes(changed) == raw:
            continue
        tried += 1
        assert arrives(bytes(changed), book, total) is not None
    assert total.accepted == 0 and book.lines == MANY and book.longest < 1000


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors = {n: t.clone() for n, t in honest().update.tensors.items()}
    return {**tensors, name: change(tensors[name])}


def put(value: float) -> Callable[[torch.Tensor, np.random.Generator], torch.Tensor]:
    def at(tensor, draw):
        tensor.view(-1)[int(draw.integers(tensor.numel()))] = value
        return tensor

    return at


def claimed(shape: list[int]) -> bytes:
    """A right digest over a header that claims far more than is there."""
    index = [["model/w", "f4", shape]]
    header = {
        "schema": 1,
        "kind": "turn",
        "run": "run",
        "site": "north",
        "answers": compute_message_id(RAW),
    }
    text = json.dumps({"header": {**header, "body": honest().header()}, "tensors": index}).encode()
    body = struct.pack("<4sHIQ", b"VTRL", 1, len(text), 16) + text + bytes(16)
    return body + blake2b(body, digest_size=16).digest()


NAMES = tuple(honest().update.tensors)
FRAMES = "model/u"


def tensor_lie(draw: np.random.Generator) -> bytes:
    """NaN, infinity, other shapes and types, too much, too little, frames that are none."""
    name = NAMES[draw.integers(len(NAMES))]
    choices = (
        lambda t: put(float("nan"))(t, draw),
        lambda t: put(float("inf"))(t, draw),
        lambda t: put(-float("inf"))(t, draw),
        lambda t: put(1e30)(t, draw),
        lambda t: t.reshape(-1)[: int(draw.integers(t.numel()))],
        lambda t: t[None],
        lambda t: t.double(),
        lambda t: t.to(torch.int64),
        lambda t: torch.zeros(int(draw.integers(200, 2000))),
        lambda t: t.reshape(-1).expand(2, -1),
        lambda t: torch.empty(0),
    )
    return sealed(tensors=changed(name, choices[draw.integers(len(choices))]))


def content_lie(draw: np.random.Generator) -> bytes:
    """Tensors too many or missing, frames that are not orthonormal, hidden names."""
    tensors = dict(honest().update.tensors)
    kind = draw.integers(4)
    if kind == 0:
        del tensors[NAMES[draw.integers(len(NAMES))]]
    elif kind == 1:
        tensors[f"model/{'x' * int(draw.integers(1, 50))}"] = torch.zeros(3)
    elif kind == 2:
        tensors[FRAMES] = tensors[FRAMES] * float(draw.uniform(1.1, 3.0))
    else:
        tensors = {f" {n}": t for n, t in tensors.items()}
    return sealed(tensors=tensors)


def number_lie(draw: np.random.Generator) -> bytes:
    """Counts and figures that no honest site has."""
    bad = (0, -1, -1e300, float("nan"), float("inf"), 1e300, 2**60, 10**300, "20", None, [20], {})
    value = bad[draw.integers(len(bad))]
    kind = draw.integers(5)
    if kind == 0:
        return sealed(body={"counts": {"examples": value, "steps": 5}})
    if kind == 1:
        return sealed(body={"counts": {"examples": 20, "steps": value}})
    if kind == 2:
        return sealed(body={"counts": {"examples": 20, "steps": int(draw.integers(51, 10**6))}})
    if kind == 3:
        return sealed(body={"metrics": {"loss": ["0.5", [1], {}, 10**300][draw.integers(4)]}})
    more = {"examples": 20, "steps": 5, "more": 1}
    return sealed(
        body=[{"counts": more}, {"counts": {}}, {"metrics": {"x": 1.0}}][draw.integers(3)]
    )


def name_lie(draw: np.random.Generator) -> bytes:
    """Another run, round, site, stage or message; a body that is none."""
    kind = draw.integers(8)
    word = "".join(chr(int(c)) for c in draw.integers(33, 1000, int(draw.integers(1, 60))))
    if kind == 0:
        return sealed(run=word)
    if kind == 1:
        return sealed(site=["west", word][draw.integers(2)])
    if kind == 2:
        return sealed(answers=[compute_message_id(word.encode()), ""][draw.integers(2)])
    if kind == 3:
        return sealed(kind=["hello", "farewell", "error", word][draw.integers(4)])
    if kind == 4:
        name = ("site", "round", "stage")[draw.integers(3)]
        return sealed(
            body={name: [word, 2, 4, -3, None, [], {}, 1e9, "x" * 10**5][draw.integers(9)]}
        )
    if kind == 5:
        names = [n for n in honest().header() if n not in ("signature", "withheld")]
        return sealed(without=[names[draw.integers(len(names))]])
    if kind == 6:
        name = ("counts", "metrics")[draw.integers(2)]
        return sealed(body={name: [None, 3, "x", [1, "a", None], [["loss", 1]]][draw.integers(5)]})
    signatures = ({}, 3, None, ["ab"], True)
    return sealed(body={"signature": signatures[draw.integers(len(signatures))]})


def size_lie(draw: np.random.Generator) -> bytes:
    """Ten gigabytes that are not there, and more dimensions than a tensor has."""
    shapes = (
        [2_500_000_000],
        [50_000, 50_000],
        [2**40, 2**40],
        [1] * 40,
        [-4],
        [2**70],
        [4, 0, 9**30],
    )
    return claimed(shapes[draw.integers(len(shapes))])


LIES = (tensor_lie, content_lie, number_lie, name_lie, size_lie)


def test_every_well_formed_lie_stops_at_the_guard(bounded) -> None:
    """The digest is right and the content is not; refuted by one that is added up, or a crash."""
    draw, book = derive_server_key(8).at("lies").numpy(), Book()
    total = Aggregator(SCHEMA, SENT, OPTIONS)
    for i in range(MANY):
        raw = LIES[i % len(LIES)](draw)
        reason = arrives(raw, book, total)
        assert reason, unseal(raw)
        assert len(reason) < 1000
    assert total.accepted == 0 and book.longest < 1000


def test_a_masked_update_of_the_wrong_outside_stops_there_too(bounded) -> None:
    """Its inside cannot be seen; size, type, name, counts and who it is from can."""
    size = masked_schema(SCHEMA, OPTIONS).up[0].shape[0]
    good = {MASKED: torch.arange(size)}
    total, book = secure(), Book()
    lies: list[dict[str, Any]] = [
        {"tensors": {MASKED: torch.arange(size + 1)}},
        {"tensors": {MASKED: torch.arange(size, dtype=torch.int32)}},
        {"tensors": {MASKED: torch.zeros(size)}},
        {"tensors": {MASKED: torch.full((size,), float("nan"))}},
        {"tensors": {"masked/other": torch.arange(size)}},
        {"tensors": honest().update.tensors},
        {"tensors": {}},
        {"tensors": good, "body": {"counts": {"examples": 20}}},
        {"tensors": good, "body": {"counts": {}, "round": 2}},
        {"tensors": good, "body": {"counts": {}, "withheld": "no"}},
    ]
    for lie in lies:
        assert arrives(sealed(**lie), book, total)
    assert not total.finish().accepted
    assert arrives(sealed(tensors=good, body={"counts": {}}), book, secure()) is None
