"""The cohort: the sites of one attempt at a secure sum, with their keys and weights."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from vitrail.secure_aggregation.graph import (
    compute_quorum,
    compute_threshold,
    list_neighbors,
    plan_sharing,
)

MAX_ATTEMPTS = 3
"""How often a round is tried; a site takes part in no more, whatever it is asked."""
MAX_WEIGHT_SHARE = 0.9
"""The largest share of the weights that one site may have; with more a sum is nearly its update."""
_KEY_DIGITS = 64  # of a public key or a commitment, in hexadecimal


@dataclass(frozen=True)
class SiteKeys:
    """What a site announces for one attempt: the public key that shares are sealed for, that of its
    masks, the commitment to the seed of its own mask, and its signature under all of it."""

    sealing: str
    masking: str
    commitment: str
    signature: str = ""

    def statement(self, run: str, round_: int, attempt: int, site: str) -> bytes:
        """What the signature is for: these keys of this site, for this attempt alone."""
        keys = [self.sealing, self.masking, self.commitment]
        return json.dumps(["vitrail secure keys", run, round_, attempt, site, *keys]).encode()

    @property
    def is_well_formed(self) -> bool:
        """Whether these could be keys at all."""
        return all(_is_key(text) for text in (self.sealing, self.masking, self.commitment))


@dataclass(frozen=True)
class Participant:
    """One site of an attempt: its keys, and how much it counts."""

    keys: SiteKeys
    weight: float


@dataclass(frozen=True)
class Cohort:
    """One attempt at the sum of a round; every site of it must be told the same.

    `message` is the digest of what the sites train on, so that no two answer different models.
    `asked` are the sites that the round began with, with their weights: the same in all its
    attempts. Left out, they are the participants.
    """

    run: str
    round: int
    attempt: int
    message: str
    participants: Mapping[str, Participant]
    asked: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def weights(self) -> dict[str, float]:
        """What each site counts that the round began with."""
        return dict(self.asked) or {name: one.weight for name, one in self.participants.items()}

    @cached_property
    def id(self) -> str:
        """A digest of all of it. Masks follow from it: sites that were told different things send
        masks that do not cancel."""
        names = sorted(self.participants)
        everybody = [
            [n, vars(self.participants[n].keys), self.participants[n].weight] for n in names
        ]
        content = [
            "vitrail secure sum",
            self.run,
            self.round,
            self.attempt,
            self.message,
            everybody,
            sorted(self.weights.items()),
        ]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=32).hexdigest()

    @property
    def threshold(self) -> int:
        """How many sites must stay through all steps: more than two thirds of the cohort, and so
        many of those the round began with that there is one sum of it, however often it is tried.
        """
        return max(compute_threshold(len(self.participants)), compute_quorum(len(self.weights)))

    @property
    def share_threshold(self) -> int:
        """How many shares give one secret of a site back."""
        return plan_sharing(len(self.participants)).threshold

    @cached_property
    def neighbors(self) -> dict[str, tuple[str, ...]]:
        """Whom each site has masks with, and who holds shares of its secrets."""
        degree = plan_sharing(len(self.participants)).degree
        return list_neighbors(self.participants, self.id, degree)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each site's share is taken, from 1 up."""
        return {site: place for place, site in enumerate(sorted(self.participants), 1)}

    def problem(self) -> str | None:
        """Why nobody should add up on these terms, in one sentence, or None."""
        keys = [participant.keys for participant in self.participants.values()]
        public = [text for key in keys for text in (key.sealing, key.masking)]
        if not all(key.is_well_formed for key in keys) or len(set(public)) < len(public):
            return "the sites' public keys are not one for each"
        told = {name: one.weight for name, one in self.participants.items()}
        if any(self.weights.get(name) != weight for name, weight in told.items()):
            return "sites or weights are not those that the round began with"
        return self.sum_problem(self.participants)

    def sum_problem(self, sites: Iterable[str]) -> str | None:
        """Why a sum over some of the sites would tell too much of one, or None."""
        return find_weight_problem([self.participants[site].weight for site in sites])


def find_weight_problem(weights: Sequence[float]) -> str | None:
    """Why a sum with these weights would tell too much of one site, or None."""
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
    return None


def state_senders(identity: str, senders: Iterable[str]) -> bytes:
    """What a site signs with its masked update: whom it has masks with."""
    return json.dumps(["vitrail senders", identity, sorted(senders)]).encode()


def state_survivors(identity: str, senders: Iterable[str], survivors: Iterable[str]) -> bytes:
    """What a site signs before anything is unmasked: whose updates are in the sum."""
    names = [sorted(senders), sorted(survivors)]
    return json.dumps(["vitrail survivors", identity, *names]).encode()


class Signer(Protocol):
    """Signs for a site and knows the others' signatures; simulations do without."""

    def sign(self, statement: bytes) -> str:
        """This site's signature of a statement."""
        ...

    def accepts(self, site: str, statement: bytes, signature: str) -> bool:
        """Whether another site signed a statement."""
        ...


def _is_key(text: Any) -> bool:
    if not isinstance(text, str) or len(text) != _KEY_DIGITS:
        return False
    return all(digit in "0123456789abcdef" for digit in text)
