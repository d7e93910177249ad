"""The steps of an attempt, as they travel: what the server asks of a site, what it answers.

    keys        fresh public keys                          -> SiteKeys
    shares      the cohort                                 -> shares, sealed for each neighbor
    (the turn)  who sent shares, and those for this site   -> the masked update, a signature
    survivors   whose update arrived, with the signatures  -> a signature
    unmask      who signed that                            -> shares that take the masks off

Only the turn carries a model and trains; the other steps are a few kilobytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from vitrail.secure_aggregation.cohort import Cohort, SiteKeys

_STRICT = ConfigDict(extra="forbid", strict=True)
Round = Annotated[int, Field(ge=1)]
Texts = dict[str, str]


@checked_dataclass(frozen=True, config=_STRICT)
class KeyRequest:
    """Announce keys for an attempt at a round whose message has this digest."""

    site: str
    round: Round
    attempt: Round
    message: str
    step: Literal["keys"] = "keys"


@checked_dataclass(frozen=True, config=_STRICT)
class ShareRequest:
    """Share the secrets behind the keys among the neighbors in this cohort."""

    site: str
    cohort: Cohort
    step: Literal["shares"] = "shares"

    @property
    def round(self) -> int:
        """The round of the cohort."""
        return self.cohort.round


@checked_dataclass(frozen=True, config=_STRICT)
class SurvivorRequest:
    """Confirm whose masked update is in the sum; the `signatures` are theirs, of whom they have
    masks with."""

    site: str
    round: Round
    cohort: str
    survivors: tuple[str, ...]
    signatures: Texts
    step: Literal["survivors"] = "survivors"


@checked_dataclass(frozen=True, config=_STRICT)
class UnmaskRequest:
    """Give the shares that take the masks off; the `signatures` are of those who confirmed that
    the same updates are in the sum."""

    site: str
    round: Round
    cohort: str
    survivors: tuple[str, ...]
    signatures: Texts
    step: Literal["unmask"] = "unmask"


StepRequest = Annotated[
    KeyRequest | ShareRequest | SurvivorRequest | UnmaskRequest, Field(discriminator="step")
]


@dataclass(frozen=True)
class MaskRequest:
    """What a turn needs to mask its update: the cohort by its digest, who sent shares to their
    neighbors, and the shares for this site, sealed."""

    attempt: int
    cohort: str
    senders: tuple[str, ...]
    shares: Mapping[str, str]


@checked_dataclass(frozen=True, config=_STRICT)
class StepAnswer:
    """What a site answers in a step, of which it fills in one; `withheld` says why it does not."""

    keys: SiteKeys | None = None
    shares: Texts = Field(default_factory=dict)
    signature: str = ""
    withheld: Annotated[str, Field(max_length=500)] = ""

    def header(self) -> dict[str, Any]:
        """As JSON for the wire."""
        return asdict(self)

    @staticmethod
    def read(raw: Any) -> StepAnswer:
        """An answer from the wire; ValueError if it is none."""
        answer: StepAnswer = _check(_ANSWER, raw)
        return answer


def read_request(raw: Any) -> StepRequest:
    """A request from the wire; ValueError if it is none."""
    request: StepRequest = _check(_REQUEST, raw)
    return request


def _check(adapter: TypeAdapter[Any], raw: Any) -> Any:
    try:
        return adapter.validate_json(json.dumps(raw), strict=True)
    except ValidationError as err:
        first = err.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{at}: {first['msg']}") from err


_REQUEST: TypeAdapter[Any] = TypeAdapter(StepRequest)
_ANSWER: TypeAdapter[Any] = TypeAdapter(StepAnswer)
