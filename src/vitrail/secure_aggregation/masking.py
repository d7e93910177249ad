"""Masks over what leaves a site: its update becomes words that only the sum gives a meaning."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vitrail.release.masker import WithheldError
from vitrail.release.update import Update
from vitrail.rng import Key
from vitrail.secure_aggregation.cohort import MAX_ATTEMPTS, Cohort, PublicKey, Signer
from vitrail.secure_aggregation.fixed_point import Words, to_fixed
from vitrail.secure_aggregation.masks import derive_private_key, derive_public_key, mask_words

MASKED = "masked/sum"
MASKED_GUARANTEE = "masked: the server sees the sum only; no formal guarantee on the sum"


@dataclass
class UpdateMasker:
    """Masks one site's update in one attempt.

    `message` is the digest of what is answered, `bytes` the size of what will leave; `lift` is
    what the update adds to the sums with a weight, `refusal` why it would be no good there.
    """

    site: str
    round: int
    run: str
    message: str
    secret: Key
    cohort: Cohort
    bytes: int
    lift: Callable[[Update, float], Tensor]
    refusal: Callable[[Update, float], str | None]
    signer: Signer | None = None
    _words: Words | None = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """What names this attempt; the masks follow from it."""
        return self.cohort.id(self.run, self.message)

    def describe(self) -> dict[str, object]:
        """What the ledger says of it."""
        return {
            "says": MASKED_GUARANTEE,
            "attempt": self.cohort.number,
            "sites": len(self.cohort.participants),
            "id": self.id,
        }

    def check_repeat(self, round_: int, known: Set[str]) -> None:
        """Refuse an attempt after which another sum might tell a site apart."""
        if self.id not in known and len(known) >= MAX_ATTEMPTS:
            raise WithheldError(f"round {round_} was tried {len(known)} times already")

    def prepare(self, update: Update) -> None:
        """Check cohort and update as the server would; `WithheldError` if either is no good."""
        reason = self._find_problem() or self.refusal(update, self._weight)
        if reason is not None:
            raise WithheldError(reason)
        lifted = self.lift(update, self._weight)
        try:
            self._words = to_fixed(lifted, len(self.cohort.participants))
        except ValueError as err:
            raise WithheldError(f"the update does not fit a secure sum: {err}") from err

    def mask(self, update: Update) -> Update:
        """The masked update. Counts stay, since they went into the sum; metrics travel in clear."""
        if self._words is None:
            self.prepare(update)
        assert self._words is not None
        try:
            masked = mask_words(self._words, self.site, self._private, self.cohort, self.id)
        except ValueError as err:
            raise WithheldError(f"a public key cannot be used: {err}") from err
        tensors = {MASKED: torch.from_numpy(masked.view(np.int64))}
        return Update(update.site, update.round, update.stage, tensors, {}, update.metrics)

    @property
    def _weight(self) -> float:
        return self.cohort.participants[self.site].weight

    @property
    def _private(self) -> Key:
        return derive_private_key(
            self.secret, self.run, self.cohort.participants[self.site].key.epoch
        )

    def _find_problem(self) -> str | None:
        """Why this site should not add up with this cohort, or None."""
        if self.site not in self.cohort.participants:
            return "this site is not among those that would add up"
        if reason := self.cohort.problem(self.round):
            return reason
        if derive_public_key(self._private) != self.cohort.participants[self.site].key.public:
            return "the public key that the others are told is not this site's"
        return None if self.signer is None else self._find_unsigned(self.signer)

    def _find_unsigned(self, signer: Signer) -> str | None:
        for other, participant in self.cohort.participants.items():
            statement = participant.key.statement(self.run, other)
            if not signer.accepts(other, statement, participant.key.signature):
                return f"the public key of {other!r} is not signed by it"
        return None


def announce_key(secret: Key, run: str, site: str, epoch: int, signer: Signer | None) -> PublicKey:
    """The public key that a site adds up with next, signed where there is somebody to sign."""
    key = PublicKey(epoch, derive_public_key(derive_private_key(secret, run, epoch)))
    if signer is None:
        return key
    return PublicKey(epoch, key.public, signer.sign(key.statement(run, site)))
