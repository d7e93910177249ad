"""Messages between coordinator and sites: who to whom, of which run and round, then the content.

A message is one of `vitrail.wire`: named tensors and a JSON header, without pickle, with sizes
checked and a digest over everything. The header binds it to a run, a site and what it answers,
so that a replayed, late, duplicated or foreign one is told from the one that was waited for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from vitrail.engine.tasks import Task
from vitrail.flower.versions import WIRE_SCHEMA
from vitrail.release.ledger_heads import KeptHead
from vitrail.secure_aggregation.steps import StepRequest
from vitrail.wire import WireError, decode, encode

_MOST_SIGNATURES = 64
_LONGEST_PATIENCE = 7 * 86400.0  # a week: longer nobody lets a message wait
MAX_HEADER_BYTES = 4 * 2**20
"""What a header may add to the bytes of the tensors that were declared."""


class MessageContent(BaseModel):
    """What the body of a message holds; anything else in it is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def read(cls, message: OpenedMessage) -> Self:
        """The content of a message that says it holds this."""
        try:
            return cls.model_validate_json(json.dumps(message.body))
        except ValidationError as err:
            first = err.errors()[0]
            at = ".".join(str(step) for step in first["loc"])
            raise WireError(
                f"a {message.kind!r} does not hold what it should ({at}: {first['msg']})"
            ) from err


class Hello(MessageContent):
    """The coordinator proposes a run: its terms, who signed them, the versions it runs, and the
    digest of pretrained weights, if any."""

    terms: dict[str, dict[str, Any]]
    versions: dict[str, str] = {}
    signatures: Annotated[dict[str, str], Field(max_length=_MOST_SIGNATURES)] = {}
    weights: str = ""
    patience: Annotated[float, Field(ge=0, le=_LONGEST_PATIENCE, allow_inf_nan=False)] = 0.0


class Shares(MessageContent):
    """How many sites there are, and how much of a sum this one and the largest count."""

    sites: Annotated[int, Field(ge=1)]
    share: Annotated[float, Field(ge=0, le=1)]
    largest: Annotated[float, Field(ge=0, le=1)]

    def describe(self) -> str:
        """One line for the site's operator."""
        return (
            f"{self.sites} sites take part; this one counts {self.share:.1%} of a sum, the "
            f"largest one {self.largest:.1%}"
        )


class TurnRequest(MessageContent):
    """One turn; `audit` asks a closing one for what audits compare. `countersigned` is the last
    head of the site's ledger that the coordinator knows."""

    task: Task
    digest: str
    shares: Shares
    versions: dict[str, str] = {}
    audit: bool = False
    countersigned: KeptHead | None = None


class StepMessage(MessageContent):
    """One step of a secure sum that is no turn."""

    request: StepRequest


class Farewell(MessageContent):
    """The run is over; what every site told for the audits."""

    tables: dict[str, dict[str, Any]] = {}
    countersigned: KeptHead | None = None


@dataclass(frozen=True)
class OpenedMessage:
    """One message, opened."""

    kind: str
    run: str
    site: str
    body: dict[str, Any]
    tensors: dict[str, Tensor]
    answers: str = ""


def seal(
    kind: str,
    run: str,
    site: str,
    body: Mapping[str, Any],
    tensors: Mapping[str, Tensor] | None = None,
    answers: str = "",
) -> bytes:
    """A message as bytes. `answers` is the mark of the message it replies to."""
    head = {"schema": WIRE_SCHEMA, "kind": kind, "run": run, "site": site, "answers": answers}
    return encode({**head, "body": dict(body)}, tensors or {})


def unseal(raw: bytes, limit: int | None = None) -> OpenedMessage:
    """Open a message; what is not exactly one of ours is refused with the reason."""
    header, tensors = decode(raw, limit)
    try:
        if header["schema"] != WIRE_SCHEMA:
            raise WireError(
                f"the message has schema {header['schema']!r}, and this side speaks {WIRE_SCHEMA}",
                hint="Install the same version of vitrail everywhere.",
            )
        words = [header[name] for name in ("kind", "run", "site", "answers")]
        if not all(isinstance(word, str) for word in words) or not isinstance(header["body"], dict):
            raise WireError("the message's header has values of the wrong type")
    except KeyError as err:
        raise WireError(f"the message's header has no {err}") from err
    kind, run, site, answers = words
    return OpenedMessage(kind, run, site, header["body"], tensors, answers)


def compute_message_id(raw: bytes) -> str:
    """What names a message, for the reply that answers it."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
