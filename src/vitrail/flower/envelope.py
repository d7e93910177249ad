"""Messages between coordinator and sites: who to whom, of which run and round, then the content.

A message is one of `vitrail.wire`: named tensors and a JSON header, without pickle, with sizes
checked and a digest over everything. The header binds it to a run, a site and what it answers,
so that a replayed, late, duplicated or foreign one is told from the one that was waited for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.wire import decode, encode
from vitrail.wire.codec import WireError

SCHEMA = 1
ROOM = 4 * 2**20
"""What a header may add to the bytes of the tensors that were declared."""


@dataclass(frozen=True)
class Letter:
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
    head = {"schema": SCHEMA, "kind": kind, "run": run, "site": site, "answers": answers}
    return encode({**head, "body": dict(body)}, tensors or {})


def unseal(raw: bytes, limit: int | None = None) -> Letter:
    """Open a message; what is not exactly one of ours is refused with the reason."""
    header, tensors = decode(raw, limit)
    try:
        if header["schema"] != SCHEMA:
            raise WireError(
                f"the message has schema {header['schema']!r}, and this side speaks {SCHEMA}",
                hint="Install the same version of vitrail everywhere.",
            )
        words = [header[name] for name in ("kind", "run", "site", "answers")]
        if not all(isinstance(word, str) for word in words) or not isinstance(header["body"], dict):
            raise WireError("the message's header has values of the wrong type")
    except KeyError as err:
        raise WireError(f"the message's header has no {err}") from err
    kind, run, site, answers = words
    return Letter(kind, run, site, header["body"], tensors, answers)


def mark(raw: bytes) -> str:
    """What names a message, for the reply that answers it."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
