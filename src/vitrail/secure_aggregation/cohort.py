"""The cohort: the sites of one attempt at a secure sum, with their keys and weights."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Protocol

from pydantic import Field

MAX_ATTEMPTS = 3
"""How often a round is tried; a site takes part in no more, whatever it is asked."""
MAX_WEIGHT_SHARE = 0.9
"""The largest share of the weights that one site may have; with more a sum is nearly its update."""
_KEY_DIGITS = 64  # of a public key, in hexadecimal


@dataclass(frozen=True)
class PublicKey:
    """A site's public key. `epoch` is the round whose reply announced it, 0 for the enrollment."""

    epoch: int
    public: str
    signature: str = ""

    def statement(self, run: str, site: str) -> bytes:
        """What its signature is for: this key of this site, in this run, since that round."""
        return json.dumps(["vitrail key", run, site, self.epoch, self.public]).encode()

    @staticmethod
    def read(raw: Any) -> PublicKey:
        """A key from the wire; ValueError if it is none."""
        if not isinstance(raw, dict) or set(raw) != {"epoch", "public", "signature"}:
            raise ValueError("a public key has an epoch, a key and a signature")
        key = PublicKey(**raw)
        if type(key.epoch) is not int or not isinstance(key.signature, str) or not _is_key(key):
            raise ValueError("this is no public key")
        return key


@dataclass(frozen=True)
class Participant:
    """One site of an attempt: its key, and how much it counts."""

    key: PublicKey
    weight: float


@dataclass(frozen=True)
class Cohort:
    """One attempt at the sum of a round; every site of it must be told the same."""

    number: int
    participants: Annotated[Mapping[str, Participant], Field(alias="parties")]  # on the wire

    def header(self) -> dict[str, Any]:
        """As JSON for the wire."""
        return {"number": self.number, "parties": asdict(self)["participants"]}

    def id(self, run: str, message: str) -> str:
        """A digest of all of it and of the message that is answered. Masks follow from it: sites
        that were told different things send masks that do not cancel."""
        content = ["vitrail secure sum", run, message, self.number, self.header()["parties"]]
        raw = json.dumps(content, sort_keys=True).encode()
        return hashlib.blake2b(raw, digest_size=32).hexdigest()

    def problem(self, round_: int) -> str | None:
        """Why nobody should add up on these terms, in one sentence, or None."""
        weights = [participant.weight for participant in self.participants.values()]
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights):
            return "a weight is not a number from 0 up"
        if sum(weight > 0 for weight in weights) < 2:
            return "fewer than 2 sites would count, and a sum of one is that site's update"
        total = sum(weights)
        if not math.isfinite(total):
            return "the weights do not add up to a number"
        if max(weights) > MAX_WEIGHT_SHARE * total:
            return (
                f"one site would have {100 * max(weights) / total:.4g} % of the weight, over the "
                f"{100 * MAX_WEIGHT_SHARE:g} % that a sum may show of one site "
                '(aggregate.weights = "uniform" counts all alike)'
            )
        keys = [participant.key for participant in self.participants.values()]
        if not all(_is_key(key) for key in keys) or len({key.public for key in keys}) < len(keys):
            return "the sites' public keys are not one for each"
        if not all(0 <= key.epoch < round_ for key in keys):
            return "a public key was not announced before this round"
        return None


class Signer(Protocol):
    """Signs for a site and knows the others' signatures; simulations do without."""

    def sign(self, statement: bytes) -> str:
        """This site's signature of a statement."""
        ...

    def accepts(self, site: str, statement: bytes, signature: str) -> bool:
        """Whether another site signed a statement."""
        ...


def _is_key(key: PublicKey) -> bool:
    if not isinstance(key.public, str) or len(key.public) != _KEY_DIGITS:
        return False
    return all(digit in "0123456789abcdef" for digit in key.public)
