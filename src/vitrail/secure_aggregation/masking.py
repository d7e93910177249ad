"""Masks over what leaves a site: its update becomes words that only the sum gives a meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vitrail.release.masker import WithheldError
from vitrail.release.update import Update
from vitrail.secure_aggregation.cohort import MAX_ATTEMPTS
from vitrail.secure_aggregation.fixed_point import Words, cut_to_range, to_fixed
from vitrail.secure_aggregation.shared_noise import SharedNoise
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import MaskRequest

MASKED = "masked/sum"
MASKED_GUARANTEE = "masked: the server sees the sum only; no formal guarantee on the sum"
NOISY_GUARANTEE = "masked: the server sees the sum only, with the noise of all sites in it"

_SILENT = "the update does not pass the guard of its own site"


@dataclass
class UpdateMasker:
    """Masks one site's update in one attempt.

    `message` is the digest of what is answered, `bytes` the size of what will leave; `lift` is
    what the update adds to the sums with a weight, `refusal` why it would be no good there.
    """

    round: int
    message: str
    steps: SiteSteps
    request: MaskRequest
    bytes: int
    lift: Callable[[Update, float], Tensor]
    refusal: Callable[[Update, float], str | None]
    noise: Sequence[SharedNoise] = ()
    _words: Words | None = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """What names this attempt; the masks follow from it."""
        return self.request.cohort

    def describe(self) -> dict[str, object]:
        """What the ledger says of it."""
        return {
            "says": NOISY_GUARANTEE if self.noise else MASKED_GUARANTEE,
            "attempt": self.request.attempt,
            "sites": len(self.request.senders),
            "id": self.id,
        }

    def check_repeat(self, round_: int, known: Set[str]) -> None:
        """Refuse an attempt after which another sum might tell a site apart."""
        if self.id not in known and len(known) >= MAX_ATTEMPTS:
            raise WithheldError(f"round {round_} was tried {len(known)} times already")

    def prepare(self, update: Update) -> None:
        """Check attempt and update as the server would; `WithheldError` if either is no good. With
        noise nothing is refused for its size, and no reason tells a number of the site."""
        state = self.steps.check_masking(self.request, self.round, self.message)
        weight = state.weights[self.steps.site]
        if reason := self.refusal(update, weight):
            raise WithheldError(_SILENT if self.noise else reason)
        lifted = self.lift(update, weight)
        if self.noise:
            lifted = cut_to_range(lifted, len(state.weights))
        try:
            self._words = to_fixed(lifted, len(state.weights))
        except ValueError as err:
            raise WithheldError(f"the update does not fit a secure sum: {err}") from err
        for noise in self.noise:
            if weight > 1:
                raise WithheldError("with this weight the update would be larger than its noise")
            self._words = noise.add(self._words, state.threshold)

    def mask(self, update: Update) -> Update:
        """The masked update. Counts stay, since they went into the sum; metrics travel in clear."""
        if self._words is None:
            self.prepare(update)
        assert self._words is not None
        masked = self.steps.mask(self.request, self.round, self.message, self._words)
        tensors = {MASKED: torch.from_numpy(masked.view(np.int64))}
        return Update(update.site, update.round, update.stage, tensors, {}, update.metrics)
