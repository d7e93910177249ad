"""A cover over what leaves a site: its update becomes words that only the sum gives a meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import VitrailError
from vitrail.release.fixed import Words, to_fixed
from vitrail.release.masks import masked, private_key, public_half
from vitrail.release.pact import ATTEMPTS, Pact, PublicKey, Vouch
from vitrail.release.update import Update
from vitrail.rng import Key

MASKED = "masked/sum"
SAYS = "masked: the server sees the sum only; no formal guarantee on the sum"


class Withheld(VitrailError):
    """A site keeps its update to itself; the sentence says why."""


@dataclass
class Cover:
    """Masks one site's update in one attempt.

    `message` is the digest of what is answered, `bytes` the size of what will leave; `lift` is
    what the update adds to the sums with a weight, `refusal` why it would be no good there.
    """

    site: str
    round: int
    run: str
    message: str
    secret: Key
    pact: Pact
    bytes: int
    lift: Callable[[Update, float], Tensor]
    refusal: Callable[[Update, float], str | None]
    vouch: Vouch | None = None
    _words: Words | None = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """What names this attempt; the masks follow from it."""
        return self.pact.id(self.run, self.message)

    def line(self) -> dict[str, object]:
        """What the ledger says of it."""
        return {
            "says": SAYS,
            "attempt": self.pact.number,
            "sites": len(self.pact.parties),
            "id": self.id,
        }

    def prepare(self, update: Update) -> None:
        """Check the pact and the update as the server would; `Withheld` if either is no good."""
        reason = self._broken() or self.refusal(update, self._weight)
        if reason is not None:
            raise Withheld(reason)
        try:
            self._words = to_fixed(self.lift(update, self._weight), len(self.pact.parties))
        except ValueError as err:
            raise Withheld(f"the update does not fit a secure sum: {err}") from err

    def over(self, update: Update) -> Update:
        """The masked update. Counts stay, since they went into the sum; metrics travel in clear."""
        if self._words is None:
            self.prepare(update)
        assert self._words is not None
        try:
            found = masked(self._words, self.site, self._private, self.pact, self.id)
        except ValueError as err:
            raise Withheld(f"a public key cannot be used: {err}") from err
        tensors = {MASKED: torch.from_numpy(found.view(np.int64))}
        return Update(update.site, update.round, update.stage, tensors, {}, update.metrics)

    @property
    def _weight(self) -> float:
        return self.pact.parties[self.site].weight

    @property
    def _private(self) -> Key:
        return private_key(self.secret, self.run, self.pact.parties[self.site].key.epoch)

    def _broken(self) -> str | None:
        if self.site not in self.pact.parties:
            return "this site is not among those that would add up"
        if reason := self.pact.problem(self.round):
            return reason
        if public_half(self._private) != self.pact.parties[self.site].key.public:
            return "the public key that the others are told is not this site's"
        return None if self.vouch is None else self._unsigned(self.vouch)

    def _unsigned(self, vouch: Vouch) -> str | None:
        for other, party in self.pact.parties.items():
            said = party.key.statement(self.run, other)
            if not vouch.accepts(other, said, party.key.signature):
                return f"the public key of {other!r} is not signed by it"
        return None


def announced(secret: Key, run: str, site: str, epoch: int, vouch: Vouch | None) -> PublicKey:
    """The public key that a site adds up with next, signed where there is somebody to sign."""
    key = PublicKey(epoch, public_half(private_key(secret, run, epoch)))
    if vouch is None:
        return key
    return PublicKey(epoch, key.public, vouch.sign(key.statement(run, site)))


def too_often(cover: Cover, known: set[str]) -> bool:
    """Whether a round was tried so often that another sum might tell a site apart."""
    return cover.id not in known and len(known) >= ATTEMPTS
