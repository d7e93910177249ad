"""A site's side of an attempt: five answers, each given once, each after its own checks.

Whatever comes again as it was gets the stored answer; anything else for a step that was answered is
withheld. A site confirms one list of survivors a round, and is in no other attempt after it; all
attempts are among the sites that the round began with. So there is one sum of a round.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from vitrail.release.masker import WithheldError
from vitrail.secure_aggregation.cohort import (
    MAX_ATTEMPTS,
    Cohort,
    Signer,
    SiteKeys,
    find_weight_problem,
    state_senders,
    state_survivors,
)
from vitrail.secure_aggregation.fixed_point import Words
from vitrail.secure_aggregation.key_exchange import (
    agree_on_key,
    commit_to,
    draw_secret,
    get_public_key,
    open_bytes,
    seal_bytes,
)
from vitrail.secure_aggregation.masks import (
    add_mask,
    apply_pair_mask,
    derive_pair_seed,
    derive_self_seed,
)
from vitrail.secure_aggregation.round_state import RoundState, StateStore
from vitrail.secure_aggregation.shamir import SHARE_BYTES, split_secret, write_share
from vitrail.secure_aggregation.steps import (
    KeyRequest,
    MaskRequest,
    ShareRequest,
    StepAnswer,
    StepRequest,
    SurvivorRequest,
    UnmaskRequest,
)


@dataclass(frozen=True)
class SiteSteps:
    """One site in one run. `least` is how many sites it wants in a sum at least; `check_weights`
    says what is wrong with the weights of a round by the terms of the run, or None."""

    site: str
    run: str
    store: StateStore
    signer: Signer | None = None
    least: int = 2
    check_weights: Callable[[Mapping[str, float]], str | None] = lambda _: None

    def answer(self, request: StepRequest) -> StepAnswer:
        """The answer to any step but the turn; why there is none is an answer too."""
        try:
            if isinstance(request, KeyRequest):
                return StepAnswer(keys=self.announce(request))
            if isinstance(request, ShareRequest):
                return StepAnswer(shares=self.share(request.cohort))
            if isinstance(request, SurvivorRequest):
                return StepAnswer(signature=self.confirm(request))
            return StepAnswer(shares=self.unmask(request))
        except WithheldError as err:
            return StepAnswer(withheld=str(err)[:500])

    def announce(self, request: KeyRequest) -> SiteKeys:
        """Fresh keys for an attempt, the same ones if it was asked before."""
        state, asked = self.store.load(), dict[str, float]()
        if state is not None and state.round >= request.round:
            if _get_turn(state) == (request.round, request.attempt, request.message):
                return state.keys
            if (state.round, state.attempt) >= (request.round, request.attempt):
                _withhold(f"attempt {request.attempt} at round {request.round} is over")
            if state.survivors or state.unmasked:
                _withhold(f"who is in the sum of round {request.round} was confirmed already")
            asked = state.asked
        if request.attempt > MAX_ATTEMPTS:
            _withhold(f"round {request.round} was tried {MAX_ATTEMPTS} times already")
        sealing, masking, seed = draw_secret(), draw_secret(), draw_secret()
        keys = SiteKeys(get_public_key(sealing), get_public_key(masking), commit_to(seed))
        statement = keys.statement(self.run, request.round, request.attempt, self.site)
        keys = replace(keys, signature=self._sign(statement))
        secret = (sealing.hex(), masking.hex(), seed.hex())
        turn = (request.round, request.attempt, request.message)
        self.store.save(RoundState(*turn, *secret, keys, asked=asked))
        return keys

    def share(self, cohort: Cohort) -> dict[str, str]:
        """Shares of both secrets, sealed for each neighbor."""
        state = self._load(cohort.round)
        if state.cohort:
            if state.cohort != cohort.id:
                _withhold("this attempt was begun with another cohort")
            return state.sealed
        self._check_cohort(cohort, state)
        neighbors = {name: cohort.participants[name].keys for name in cohort.neighbors[self.site]}
        places = {name: cohort.places[name] for name in (self.site, *neighbors)}
        needed = cohort.share_threshold
        masking = split_secret(bytes.fromhex(state.masking), places.values(), needed)
        seed = split_secret(bytes.fromhex(state.seed), places.values(), needed)
        sealed = {}
        for name, keys in neighbors.items():
            pair = write_share(masking[places[name]]) + write_share(seed[places[name]])
            key = self._agree(state, keys.sealing, cohort.id, self.site, name)
            sealed[name] = seal_bytes(key, bytes.fromhex(pair))
        weights = {name: one.weight for name, one in cohort.participants.items()}
        self.store.save(
            replace(
                state,
                cohort=cohort.id,
                threshold=cohort.threshold,
                share_threshold=needed,
                weights=weights,
                asked=cohort.weights,
                neighbors=neighbors,
                own_share=write_share(seed[places[self.site]]),
                sealed=sealed,
            )
        )
        return sealed

    def check_masking(self, request: MaskRequest, round_: int, message: str) -> RoundState:
        """The state that an update may be masked with now."""
        state = self._load(round_)
        if not state.cohort or (state.cohort, state.message) != (request.cohort, message):
            _withhold("no shares were made for this cohort and this message")
        senders = sorted(request.senders)
        if state.senders and (state.senders, state.received) != (senders, dict(request.shares)):
            _withhold("this attempt was answered for other senders")
        if len(set(senders)) < len(senders) or not set(senders) <= set(state.weights):
            _withhold("a sender is not of the cohort")
        if self.site not in senders or len(senders) < state.threshold:
            _withhold(f"{len(senders)} sites sent shares, and {state.threshold} must stay")
        if set(request.shares) != set(senders) & set(state.neighbors):
            _withhold("the shares are not those of the senders")
        if len(request.shares) + 1 < state.share_threshold:
            _withhold("too few neighbors are left to take this site's masks off")
        return state

    def mask(self, request: MaskRequest, round_: int, message: str, words: Words) -> Words:
        """A site's numbers under its own mask and those with every neighbor that sent shares."""
        state = self.check_masking(request, round_, message)
        masked = words.copy()
        add_mask(masked, derive_self_seed(bytes.fromhex(state.seed), state.cohort, self.site))
        for other in sorted(request.shares):
            try:
                public, pair = state.neighbors[other].masking, (self.site, other)
                private = bytes.fromhex(state.masking)
                seed = derive_pair_seed(private, public, state.cohort, pair)
            except ValueError:
                _withhold(f"the public key of {other!r} cannot be used")
            apply_pair_mask(masked, seed, self.site, other)
        digest = hashlib.blake2b(masked.data, digest_size=16).hexdigest()
        if state.masked and state.masked != digest:
            _withhold("another update was masked in this attempt")
        senders, received = sorted(request.senders), dict(request.shares)
        self.store.save(replace(state, senders=senders, received=received, masked=digest))
        return masked

    def sign_senders(self, request: MaskRequest) -> str:
        """This site's word on whom it has masks with."""
        return self._sign(state_senders(request.cohort, request.senders))

    def confirm(self, request: SurvivorRequest) -> str:
        """This site's word on whose updates are in the sum; one word an attempt."""
        state = self._load_masked(request)
        survivors = sorted(request.survivors)
        if state.survivors and state.survivors != survivors:
            _withhold("other survivors were confirmed in this attempt")
        if len(set(survivors)) < len(survivors) or not set(survivors) <= set(state.senders):
            _withhold("a survivor is not among those who sent shares")
        if self.site not in survivors or len(survivors) < max(state.threshold, self.least):
            _withhold(f"{len(survivors)} sites are in the sum, and {state.threshold} must stay")
        if reason := find_weight_problem([state.weights[name] for name in survivors]):
            _withhold(reason)
        statement = state_senders(state.cohort, state.senders)
        for name in survivors:
            if not self._accepts(name, statement, request.signatures.get(name, "")):
                _withhold(f"{name!r} has not signed that it has masks with the same sites")
        self.store.save(replace(state, survivors=survivors))
        return self._sign(state_survivors(state.cohort, state.senders, survivors))

    def unmask(self, request: UnmaskRequest) -> dict[str, str]:
        """A share of the seed of everybody who is in the sum, and of the mask key of the others:
        of nobody both."""
        state = self._load_masked(request)
        if not state.survivors or state.survivors != sorted(request.survivors):
            _withhold("other survivors were confirmed in this attempt")
        statement = state_survivors(state.cohort, state.senders, state.survivors)
        agreed = [
            name
            for name, signature in request.signatures.items()
            if name in state.survivors and self._accepts(name, statement, signature)
        ]
        if len(agreed) < state.threshold:
            _withhold(f"{len(agreed)} sites signed who is in the sum, and {state.threshold} must")
        shares = {self.site: state.own_share}
        for name, sealed in state.received.items():
            key = self._agree(state, state.neighbors[name].sealing, state.cohort, name, self.site)
            try:
                pair = open_bytes(key, sealed)
            except ValueError:
                continue  # what cannot be read is one share less
            if len(pair) == 2 * SHARE_BYTES:
                half = pair[SHARE_BYTES:] if name in state.survivors else pair[:SHARE_BYTES]
                shares[name] = half.hex()
        self.store.save(replace(state, unmasked=True))
        return shares

    def _check_cohort(self, cohort: Cohort, state: RoundState) -> None:
        """Refuse a cohort in which this site should not add up."""
        if (cohort.run, *_get_turn(state)) != (
            self.run,
            cohort.round,
            cohort.attempt,
            cohort.message,
        ):
            _withhold("the cohort is of another attempt")
        if self.site not in cohort.participants:
            _withhold("this site is not among those that would add up")
        if cohort.participants[self.site].keys != state.keys:
            _withhold("the public keys that the others are told are not this site's")
        if len(cohort.participants) < self.least:
            _withhold("the sum is over fewer sites than this site's policy asks for")
        if state.asked and state.asked != cohort.weights:
            _withhold("this round was begun among other sites, or with other weights")
        if reason := cohort.problem() or self.check_weights(cohort.weights):
            _withhold(reason)
        if len(cohort.participants) < cohort.threshold:
            _withhold(f"{len(cohort.participants)} sites would add up, too few for one sum a round")
        for name in cohort.neighbors[self.site]:
            keys = cohort.participants[name].keys
            statement = keys.statement(self.run, cohort.round, cohort.attempt, name)
            if not self._accepts(name, statement, keys.signature):
                _withhold(f"the public key of {name!r} is not signed by it")

    def _load(self, round_: int) -> RoundState:
        state = self.store.load()
        if state is None or state.round != round_:
            _withhold(f"this site has no keys for round {round_}")
        return state

    def _load_masked(self, request: SurvivorRequest | UnmaskRequest) -> RoundState:
        state = self._load(request.round)
        if not state.masked or state.cohort != request.cohort:
            _withhold("no update was masked for this cohort")
        return state

    def _agree(self, state: RoundState, public: str, cohort: str, sender: str, to: str) -> bytes:
        """The key of what one site seals for another."""
        purpose = json.dumps(["vitrail shares", cohort, sender, to])
        try:
            return agree_on_key(bytes.fromhex(state.sealing), public, purpose)
        except ValueError:
            other = to if sender == self.site else sender
            _withhold(f"the public key of {other!r} cannot be used")

    def _sign(self, statement: bytes) -> str:
        return "" if self.signer is None else self.signer.sign(statement)

    def _accepts(self, site: str, statement: bytes, signature: str) -> bool:
        return self.signer is None or self.signer.accepts(site, statement, signature)


def _get_turn(state: RoundState) -> tuple[int, int, str]:
    return state.round, state.attempt, state.message


def _withhold(reason: str) -> NoReturn:
    raise WithheldError(reason)
