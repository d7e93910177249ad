"""What a server asks of a site in one turn, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor

from vitrail.release.update import Update
from vitrail.secure_aggregation.steps import MaskRequest


@dataclass(frozen=True)
class Task:
    """One turn of one site.

    `sites` is how many there are in all; `base` is the site's last accepted round, whose state
    it builds on (0: none); states older than `floor` will never be asked for again. A closing
    turn arrives and evaluates only. `assets` are the digests of what the site builds on beside
    the message, by name; those it `lacks` so far are sent to it with the task. `masks` asks for
    the update under them.
    """

    site: str
    round: int
    sites: int
    base: int = 0
    floor: int = 0
    evaluate: bool = True
    closing: bool = False
    assets: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    masks: MaskRequest | None = None

    def header(self) -> dict[str, Any]:
        """As JSON for the wire."""
        return asdict(self)

    @staticmethod
    def read(header: Mapping[str, Any]) -> Task:
        """A task from our own engine."""
        return _TASK.validate_python(header)

    def make_digest_header(self, stage: str) -> dict[str, Any]:
        """What the digest of the message covers beside its tensors: the same for every site."""
        named: dict[str, Any] = {"round": self.round, "stage": stage}
        return {**named, "assets": dict(self.assets)} if self.assets else named

    def make_answer_key(self, digest: str) -> str:
        """What a turn answers: the message, and all else the answer depends on."""
        return f"{digest}/{self.base}/{self.sites}"


_TASK = TypeAdapter(Task)  # made once: a worker reads one for every turn


@dataclass(frozen=True)
class RoundMessage:
    """The message of a round: the same for every site, so it crosses to a process once."""

    round: int
    tensors: Mapping[str, Tensor]
    digest: str


@dataclass(frozen=True)
class Reply:
    """What came of a task. `kept` says whether the site saved a state for this round.

    With secure sums it brings the site's `signature` of whom it has masks with; `withheld` says
    why a site keeps its update to itself.
    """

    update: Update
    kept: bool = False
    signature: str = ""
    withheld: str = ""

    def header(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON for the wire."""
        update = self.update
        return {
            "site": update.site,
            "round": update.round,
            "stage": update.stage,
            "counts": dict(update.counts),
            "metrics": dict(update.metrics),
            "kept": self.kept,
            "signature": self.signature,
            "withheld": self.withheld,
        }

    @staticmethod
    def read(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Reply:
        """A reply from the wire; the guard checks what it says."""
        names = ("site", "round", "stage", "counts", "metrics")
        if not isinstance(header["counts"], dict) or not isinstance(header["metrics"], dict):
            raise TypeError("counts and metrics are tables")
        update = Update(tensors=tensors, **{name: header[name] for name in names})
        signature = header.get("signature", "")
        if not isinstance(signature, str):
            raise TypeError("a signature is a text")
        return Reply(
            update,
            bool(header["kept"]),
            signature,
            str(header.get("withheld", ""))[:500],
        )


def pack_replies(replies: Sequence[Reply]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Several replies as one message: their headers, and tensors named by the reply's number."""
    tensors = {
        f"{at}/{name}": tensor
        for at, reply in enumerate(replies)
        for name, tensor in reply.update.tensors.items()
    }
    return {"replies": [reply.header() for reply in replies]}, tensors


def unpack_replies(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[Reply]:
    """What `pack_replies` packed, in order."""
    named: list[dict[str, Tensor]] = [{} for _ in header["replies"]]
    for name, tensor in tensors.items():
        at, _, field_name = name.partition("/")
        named[int(at)][field_name] = tensor
    for own_header, own_tensors in zip(header["replies"], named, strict=True):
        yield Reply.read(own_header, own_tensors)


@dataclass(frozen=True)
class MissingReply:
    """No reply: the site was away, too late, or `said` itself why it does not answer."""

    reason: str
    said: bool = False
