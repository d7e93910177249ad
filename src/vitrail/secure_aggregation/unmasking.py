"""Taking the masks off a sum, with the shares of those who stayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import comb

from vitrail.secure_aggregation.cohort import Cohort
from vitrail.secure_aggregation.fixed_point import Words
from vitrail.secure_aggregation.key_exchange import commit_to, get_public_key
from vitrail.secure_aggregation.masks import (
    apply_pair_mask,
    derive_pair_seed,
    derive_self_seed,
    take_mask_away,
)
from vitrail.secure_aggregation.shamir import combine_shares, evaluate_at, read_share

Shares = dict[str, dict[int, int]]
_MOST_CHOICES = 1500  # of shares that are tried for one secret


class UnmaskingError(ValueError):
    """The masks cannot be taken off; the sentence says why."""


def gather_shares(cohort: Cohort, answers: Mapping[str, Mapping[str, str]]) -> Shares:
    """The shares by the site whose secret they are of, then by the holder's place. What a site has
    no business to hold, or cannot be read, is left out."""
    gathered: Shares = {}
    for holder, shares in answers.items():
        for owner, text in shares.items():
            if owner != holder and owner not in cohort.neighbors[holder]:
                continue
            try:
                share = read_share(text)
            except ValueError:
                continue
            gathered.setdefault(owner, {})[cohort.places[holder]] = share
    return gathered


@dataclass
class Recovery:
    """The secrets behind the masks of one attempt, from the shares that were given back. Remembers
    which holders' shares were off, and of whom."""

    cohort: Cohort
    shares: Shares
    _off: dict[str, set[str]] = field(default_factory=dict, init=False)  # holders by owner
    _lost: str = field(default="", init=False)  # the owner of a secret that nobody gets back

    def remove_masks(
        self, total: Words, senders: Collection[str], survivors: Collection[str]
    ) -> Words:
        """The sum without its masks: the own ones of those who are in it, and those that they have
        with senders who are not."""
        words, cohort = total.copy(), self.cohort
        for site in sorted(survivors):
            seed = self._recover(site, commit_to, cohort.participants[site].keys.commitment)
            take_mask_away(words, derive_self_seed(seed, cohort.id, site))
        for lost in sorted(set(senders) - set(survivors)):
            public = cohort.participants[lost].keys.masking
            private = self._recover(lost, get_public_key, public)
            for site in sorted(set(cohort.neighbors[lost]) & set(survivors)):
                other = cohort.participants[site].keys.masking
                seed = derive_pair_seed(private, other, cohort.id, (lost, site))
                apply_pair_mask(words, seed, lost, site)  # the other half of the pair
        return words

    def find_liars(self) -> dict[str, str]:
        """Sites that gave false shares, and what of. A share that is off may be its holder's lie or
        its owner's; so many that honest sites must be among them are not."""
        most = -(-len(self.cohort.participants) // 3) - 1  # that may work against the others
        liars = {}
        owners = Counter(holder for off in self._off.values() for holder in off)
        for holder, times in owners.items():
            if times > most:
                liars[holder] = f"its shares of the secrets of {times} sites are false"
        for owner, off in self._off.items():
            if len(off - set(liars)) > most:
                liars[owner] = f"the shares that it sent to {len(off)} sites are of no secret"
        if self._lost and self._lost not in liars:
            held, needed = self.shares.get(self._lost, {}), self.cohort.share_threshold
            if len(held) >= needed + most and comb(len(held), needed) <= _MOST_CHOICES:
                liars[self._lost] = "the shares that it sent are of no secret"
        return liars

    def _recover(self, site: str, describe: Callable[[bytes], str], wanted: str) -> bytes:
        """A secret of a site that fits what it announced, whoever lies of those it is not needed
        from."""
        held, needed = self.shares.get(site, {}), self.cohort.share_threshold
        if len(held) < needed:
            raise UnmaskingError(
                f"{len(held)} shares of a secret of {site!r} are left, and {needed} are needed"
            )
        for places in _list_choices(sorted(held), needed, self._list_suspects()):
            chosen = {place: held[place] for place in places}
            try:
                secret = combine_shares(chosen, needed)
            except ValueError:
                continue
            if describe(secret) == wanted:
                self._note_off(site, held, chosen)
                return secret
        self._lost = site
        raise UnmaskingError(f"the shares of a secret of {site!r} do not fit what it announced")

    def _note_off(self, owner: str, held: Mapping[int, int], chosen: Mapping[int, int]) -> None:
        """Remember whose shares are not on the polynomial of those that gave the secret back."""
        rest = [place for place in held if place not in chosen]
        names = {place: site for site, place in self.cohort.places.items()}
        off = {names[x] for x in rest if evaluate_at(chosen, x) != held[x]}
        if off:
            self._off[owner] = off

    def _list_suspects(self) -> set[int]:
        """The places of holders whose shares were off before."""
        return {self.cohort.places[holder] for off in self._off.values() for holder in off}


def _list_choices(held: list[int], needed: int, suspects: set[int]) -> Iterator[tuple[int, ...]]:
    """Choices of so many shares, the likeliest first: without suspects, without any one, then all
    choices as long as they are few."""
    trusted = [place for place in held if place not in suspects]
    ordered = (trusted + [place for place in held if place in suspects])[:needed]
    yield tuple(sorted(ordered))
    yield from islice(combinations(held, needed), _MOST_CHOICES)
    if len(held) > needed:
        for liar in held:
            rest = [place for place in held if place != liar]
            yield tuple(rest[-needed:])
