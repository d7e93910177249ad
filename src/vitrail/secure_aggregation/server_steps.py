"""The server's side of a round: it passes keys and sealed shares on, and adds up.

An attempt that loses too many before anything is unmasked is tried again by those who are left,
with new keys. Once sites were asked to unmask there is no other attempt: they would refuse it, so
that nobody can compare two sums of one round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vitrail.secure_aggregation.cohort import MAX_ATTEMPTS, Cohort, Participant, SiteKeys
from vitrail.secure_aggregation.fixed_point import Words
from vitrail.secure_aggregation.graph import compute_threshold
from vitrail.secure_aggregation.key_exchange import is_usable
from vitrail.secure_aggregation.steps import (
    KeyRequest,
    MaskRequest,
    ShareRequest,
    StepAnswer,
    StepRequest,
    SurvivorRequest,
    UnmaskRequest,
)
from vitrail.secure_aggregation.unmasking import UnmaskingError, gather_shares, remove_masks


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

    def collect(self, requests: Mapping[str, MaskRequest]) -> tuple[MaskedTotal, dict[str, str]]:
        """Ask sites for masked updates: the sum of those that are good, and their signatures."""
        ...


@dataclass(frozen=True)
class SecureSum:
    """What came of a round: the sum over `survivors`, or the `problem` why there is none."""

    words: Words | None = None
    survivors: tuple[str, ...] = ()
    problem: str = ""
    cohort: Cohort | None = None


class LostAttemptError(Exception):
    """An attempt lost too many sites; `final` if sites were asked to unmask it."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


@dataclass
class SecureRound:
    """One round of secure sums, as the server knows it. `absent` sites are lost after they have
    shared their secrets, as a simulation wants it."""

    run: str
    number: int
    message: str
    weights: Mapping[str, float]
    link: SiteLink
    absent: Sequence[str] = ()
    _lost: set[str] = field(default_factory=set, init=False)
    _withheld: Counter[str] = field(default_factory=Counter, init=False)

    def add_up(self, sites: Sequence[str]) -> SecureSum:
        """Play the steps, again without those who are lost if an attempt fails."""
        problem = ""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            stubborn = {s for s, times in self._withheld.items() if times == MAX_ATTEMPTS - 1}
            asked = [site for site in sites if site not in self._lost | stubborn]
            if attempt == 1:
                asked += self.absent
            try:
                return self._play(attempt, asked)
            except LostAttemptError as err:
                problem = str(err)
                if err.final:
                    break
        return SecureSum(problem=problem)

    def _play(self, attempt: int, sites: Sequence[str]) -> SecureSum:
        """Keys, shares, masked updates, survivors, unmasking: through all of them must stay more
        than two thirds of those who were asked."""
        needed = compute_threshold(len(sites))
        cohort = self._form_cohort(attempt, sites, needed)
        sealed = self._exchange([ShareRequest(site, cohort) for site in cohort.participants])
        senders = tuple(
            sorted(
                site
                for site, answer in sealed.items()
                if set(answer.shares) == set(cohort.neighbors[site])
            )
        )
        _check_enough(len(senders), needed, "shared their keys")
        total, signatures = self.link.collect(
            {
                site: MaskRequest(attempt, cohort.id, senders, shares)
                for site, shares in _deliver_shares(cohort, senders, sealed).items()
                if site not in self.absent
            }
        )
        survivors = tuple(sorted(total.accepted))
        self._lost |= set(senders) - set(survivors)
        _check_enough(len(survivors), needed, "sent their masked updates")
        if reason := cohort.sum_problem(survivors):
            raise LostAttemptError(reason)
        return self._unmask(cohort, needed, senders, total, survivors, signatures)

    def _form_cohort(self, attempt: int, sites: Sequence[str], needed: int) -> Cohort:
        """Those who announce keys, with their weights."""
        announced = self._exchange(
            [KeyRequest(site, self.number, attempt, self.message) for site in sites]
        )
        keys = {site: answer.keys for site, answer in sorted(announced.items()) if answer.keys}
        times = Counter(text for one in keys.values() for text in (one.sealing, one.masking))
        participants = {
            site: Participant(one, self.weights[site])
            for site, one in keys.items()
            if _is_good(one) and times[one.sealing] == times[one.masking] == 1
        }
        self._lost |= set(keys) - set(participants)
        _check_enough(len(participants), max(2, needed), "announced keys")
        cohort = Cohort(self.run, self.number, attempt, self.message, participants)
        if reason := cohort.problem():
            raise LostAttemptError(reason)
        return cohort

    def _unmask(
        self,
        cohort: Cohort,
        needed: int,
        senders: tuple[str, ...],
        total: MaskedTotal,
        survivors: tuple[str, ...],
        signatures: Mapping[str, str],
    ) -> SecureSum:
        """Let the survivors agree on who is in the sum, then take the masks off it."""
        terms = (self.number, cohort.id, survivors)
        signed = {site: signatures.get(site, "") for site in survivors}
        confirmed = self._exchange([SurvivorRequest(site, *terms, signed) for site in survivors])
        _check_enough(len(confirmed), needed, "confirmed who is in the sum")
        agreed = {site: answer.signature for site, answer in confirmed.items()}
        answers = self._exchange([UnmaskRequest(site, *terms, agreed) for site in agreed])
        shares = {site: answer.shares for site, answer in answers.items()}
        _check_enough(len(shares), needed, "helped to unmask the sum", final=True)
        try:
            gathered = gather_shares(cohort, shares)
            words = remove_masks(total.words, cohort, senders, survivors, gathered)
        except UnmaskingError as err:
            raise LostAttemptError(str(err), final=True) from err
        return SecureSum(words, survivors, cohort=cohort)

    def _exchange(self, requests: Sequence[StepRequest]) -> dict[str, StepAnswer]:
        """The answers that say something. Who is silent is not asked in another attempt; who
        withholds an answer is, because that attempt may be over since a restart, but not in the
        last one."""
        answers = self.link.exchange(requests)
        self._withheld.update(site for site, answer in answers.items() if answer.withheld)
        self._lost |= {request.site for request in requests} - set(answers)
        return {site: answer for site, answer in answers.items() if not answer.withheld}


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
