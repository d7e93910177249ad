"""The server's side of a round: it passes keys and sealed shares on, and adds up.

An attempt that loses too many before anything is confirmed is tried again by those who are left,
with new keys, while they are enough of those the round began with. Once sites were asked to confirm
who is in the sum there is no other attempt: they would refuse it, so that nobody can compare two
sums of one round.

Whatever a site sends is checked before it is passed on: signatures, where the server knows the
sites' keys, and shapes. Who sends anything else is named and left out, and the others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from vitrail.secure_aggregation.cohort import (
    MAX_ATTEMPTS,
    Cohort,
    Participant,
    SiteKeys,
    state_senders,
    state_survivors,
)
from vitrail.secure_aggregation.fixed_point import Words
from vitrail.secure_aggregation.graph import compute_quorum
from vitrail.secure_aggregation.key_exchange import is_sealed, is_usable
from vitrail.secure_aggregation.shamir import SHARE_BYTES
from vitrail.secure_aggregation.steps import (
    KeyRequest,
    MaskRequest,
    ShareRequest,
    StepAnswer,
    StepRequest,
    SurvivorRequest,
    UnmaskRequest,
)
from vitrail.secure_aggregation.unmasking import Recovery, UnmaskingError, gather_shares

Verify = Callable[[str, bytes, str], bool]
"""Whether a site signed a statement."""


class MaskedTotal(Protocol):
    """What masked updates are added to."""

    @property
    def accepted(self) -> Sequence[str]:
        """Whose masked update is in it."""
        ...

    @property
    def words(self) -> Words:
        """The sum under its masks."""
        ...


class SiteLink(Protocol):
    """How the server reaches sites in one round. Who does not answer is not in the answers."""

    def exchange(self, requests: Sequence[StepRequest]) -> dict[str, StepAnswer]:
        """One small message to each site and back; sites that withhold their answer say why."""
        ...

    def collect(
        self, requests: Mapping[str, MaskRequest], is_signed: Callable[[str, str], bool]
    ) -> tuple[MaskedTotal, dict[str, str]]:
        """Ask sites for masked updates: the sum of those that are good and whose signature is the
        site's, and their signatures."""
        ...


@dataclass(frozen=True)
class SecureSum:
    """What came of a round: the sum over `survivors`, or the `problem` why there is none. `blamed`
    are sites that sent what they should not have, and what that was; `liars` those of them whose
    shares spoil sums, so that no later round should ask them."""

    words: Words | None = None
    survivors: tuple[str, ...] = ()
    problem: str = ""
    cohort: Cohort | None = None
    blamed: Mapping[str, str] = field(default_factory=dict)
    liars: frozenset[str] = frozenset()


class LostAttemptError(Exception):
    """An attempt lost too many sites; `final` if sites were asked to confirm it."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


@dataclass
class SecureRound:
    """One round of secure sums, as the server knows it. `absent` sites are lost after they have
    shared their secrets, as a simulation wants it; `verify` knows the sites' signatures."""

    run: str
    number: int
    message: str
    weights: Mapping[str, float]
    link: SiteLink
    absent: Sequence[str] = ()
    verify: Verify = lambda *_: True
    _asked: dict[str, float] = field(default_factory=dict, init=False)
    _lost: set[str] = field(default_factory=set, init=False)
    _withheld: Counter[str] = field(default_factory=Counter, init=False)
    _blamed: dict[str, str] = field(default_factory=dict, init=False)
    _liars: set[str] = field(default_factory=set, init=False)

    def add_up(self, sites: Sequence[str]) -> SecureSum:
        """Play the steps, again without those who are lost if an attempt fails."""
        problem = ""
        self._asked = {site: self.weights[site] for site in (*sites, *self.absent)}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            stubborn = {s for s, times in self._withheld.items() if times == MAX_ATTEMPTS - 1}
            asked = [site for site in sites if site not in self._lost | stubborn]
            if attempt == 1:
                asked += self.absent
            elif len(asked) < compute_quorum(len(self._asked)):
                break
            try:
                result = self._play(attempt, asked)
                return replace(result, blamed=self._blamed, liars=frozenset(self._liars))
            except LostAttemptError as err:
                problem = str(err)
                if err.final:
                    break
        return SecureSum(problem=problem, blamed=self._blamed, liars=frozenset(self._liars))

    def _play(self, attempt: int, sites: Sequence[str]) -> SecureSum:
        """Keys, shares, masked updates, survivors, unmasking: through all of them must stay as many
        as the cohort's threshold says."""
        cohort = self._form_cohort(attempt, sites)
        sealed = self._exchange([ShareRequest(site, cohort) for site in cohort.participants])
        for site, answer in sealed.items():
            if not _are_shares(answer.shares, cohort.neighbors[site]):
                self._blame(site, "its shares are not one for each neighbor")
        senders = tuple(sorted(site for site in sealed if site not in self._blamed))
        _check_enough(len(senders), cohort.threshold, "shared their keys")
        statement = state_senders(cohort.id, senders)
        total, signatures = self.link.collect(
            {
                site: MaskRequest(attempt, cohort.id, senders, shares)
                for site, shares in _deliver_shares(cohort, senders, sealed).items()
                if site not in self.absent
            },
            lambda site, signature: self._is_signed(site, statement, signature),
        )
        survivors = tuple(sorted(total.accepted))
        self._lost |= set(senders) - set(survivors)
        _check_enough(len(survivors), cohort.threshold, "sent their masked updates")
        if reason := cohort.sum_problem(survivors):
            raise LostAttemptError(reason)
        return self._unmask(cohort, senders, total, survivors, signatures)

    def _form_cohort(self, attempt: int, sites: Sequence[str]) -> Cohort:
        """Those who announce keys that the others can use, with their weights."""
        announced = self._exchange(
            [KeyRequest(site, self.number, attempt, self.message) for site in sites]
        )
        keys = {site: answer.keys for site, answer in sorted(announced.items()) if answer.keys}
        times = Counter(text for one in keys.values() for text in (one.sealing, one.masking))
        for site, one in keys.items():
            if not _is_good(one) or times[one.sealing] > 1 or times[one.masking] > 1:
                self._blame(site, "its public keys cannot be used")
            else:
                statement = one.statement(self.run, self.number, attempt, site)
                self._is_signed(site, statement, one.signature)
        participants = {
            site: Participant(one, self._asked[site])
            for site, one in keys.items()
            if site not in self._blamed
        }
        needed = max(2, compute_quorum(len(self._asked)))
        _check_enough(len(participants), needed, "announced keys")
        asked = (self.run, self.number, attempt, self.message)
        cohort = Cohort(*asked, participants, self._asked)
        if reason := cohort.problem():
            raise LostAttemptError(reason)
        _check_enough(len(participants), cohort.threshold, "announced keys")
        return cohort

    def _unmask(
        self,
        cohort: Cohort,
        senders: tuple[str, ...],
        total: MaskedTotal,
        survivors: tuple[str, ...],
        signatures: Mapping[str, str],
    ) -> SecureSum:
        """Let the survivors agree on who is in the sum, then take the masks off it."""
        terms, needed = (self.number, cohort.id, survivors), cohort.threshold
        signed = {site: signatures.get(site, "") for site in survivors}
        confirmed = self._exchange([SurvivorRequest(site, *terms, signed) for site in survivors])
        statement = state_survivors(cohort.id, senders, survivors)
        agreed = {
            site: answer.signature
            for site, answer in confirmed.items()
            if self._is_signed(site, statement, answer.signature)
        }
        _check_enough(len(agreed), needed, "confirmed who is in the sum", final=True)
        answers = self._exchange([UnmaskRequest(site, *terms, agreed) for site in agreed])
        shares = {site: answer.shares for site, answer in answers.items()}
        _check_enough(len(shares), needed, "helped to unmask the sum", final=True)
        recovery = Recovery(cohort, gather_shares(cohort, shares))
        try:
            words = recovery.remove_masks(total.words, senders, survivors)
        except UnmaskingError as err:
            raise LostAttemptError(str(err), final=True) from err
        finally:
            for site, reason in recovery.find_liars().items():
                self._liars.add(site)
                self._blame(site, reason)
        return SecureSum(words, survivors, cohort=cohort)

    def _is_signed(self, site: str, statement: bytes, signature: str) -> bool:
        """Whether a site signed a statement; who did not is left out from here on."""
        if self.verify(site, statement, signature):
            return True
        self._blame(site, "what it sent is not signed with its node key")
        return False

    def _blame(self, site: str, reason: str) -> None:
        """Name a site that sent what it should not have; the round goes on without it."""
        self._blamed.setdefault(site, reason)
        self._lost.add(site)

    def _exchange(self, requests: Sequence[StepRequest]) -> dict[str, StepAnswer]:
        """The answers that say something. Who is silent is not asked in another attempt; who
        withholds an answer is, because that attempt may be over since a restart, but not in the
        last one."""
        answers = self.link.exchange(requests)
        self._withheld.update(site for site, answer in answers.items() if answer.withheld)
        self._lost |= {request.site for request in requests} - set(answers)
        return {site: answer for site, answer in answers.items() if not answer.withheld}


def _are_shares(shares: Mapping[str, str], neighbors: Sequence[str]) -> bool:
    """Whether there is one for each neighbor, of the size that a pair of shares has when sealed."""
    whole = set(shares) == set(neighbors)
    return whole and all(is_sealed(text, 2 * SHARE_BYTES) for text in shares.values())


def _is_good(keys: SiteKeys) -> bool:
    """Whether the others can use a site's keys; one that sends others costs itself a round."""
    return keys.is_well_formed and is_usable(keys.sealing) and is_usable(keys.masking)


def _deliver_shares(
    cohort: Cohort, senders: Sequence[str], sealed: Mapping[str, StepAnswer]
) -> dict[str, dict[str, str]]:
    """What each sender gets: the shares that its neighbors among the senders sealed for it."""
    there = set(senders)
    return {
        site: {
            other: sealed[other].shares[site] for other in cohort.neighbors[site] if other in there
        }
        for site in senders
    }


def _check_enough(count: int, needed: int, did: str, final: bool = False) -> None:
    if count < needed:
        raise LostAttemptError(f"{count} sites {did}, and {needed} must stay", final)
