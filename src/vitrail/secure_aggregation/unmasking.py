"""Taking the masks off a sum, with the shares of those who stayed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from vitrail.secure_aggregation.cohort import Cohort
from vitrail.secure_aggregation.fixed_point import Words
from vitrail.secure_aggregation.key_exchange import commit_to, get_public_key
from vitrail.secure_aggregation.masks import (
    apply_pair_mask,
    derive_pair_seed,
    derive_self_seed,
    take_mask_away,
)
from vitrail.secure_aggregation.shamir import combine_shares, read_share

Shares = dict[str, dict[int, int]]


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


def remove_masks(
    total: Words,
    cohort: Cohort,
    senders: Collection[str],
    survivors: Collection[str],
    shares: Shares,
) -> Words:
    """The sum without its masks: the own ones of those who are in it, and those that they have
    with senders who are not."""
    words = total.copy()
    for site in sorted(survivors):
        commitment = cohort.participants[site].keys.commitment
        seed = _recover(site, cohort, shares, commit_to, commitment)
        take_mask_away(words, derive_self_seed(seed, cohort.id, site))
    for lost in sorted(set(senders) - set(survivors)):
        public = cohort.participants[lost].keys.masking
        private = _recover(lost, cohort, shares, get_public_key, public)
        for site in sorted(set(cohort.neighbors[lost]) & set(survivors)):
            other = cohort.participants[site].keys.masking
            seed = derive_pair_seed(private, other, cohort.id, (lost, site))
            apply_pair_mask(words, seed, lost, site)  # the other half of the pair
    return words


def _recover(
    site: str, cohort: Cohort, shares: Shares, describe: Callable[[bytes], str], wanted: str
) -> bytes:
    """A secret of a site that fits what it announced. One holder that lies is left out."""
    held, needed = shares.get(site, {}), cohort.share_threshold
    if len(held) < needed:
        raise UnmaskingError(
            f"{len(held)} shares of a secret of {site!r} are left, and {needed} are needed"
        )
    subsets = [held] + [
        {place: share for place, share in held.items() if place != liar}
        for liar in sorted(held)[:needed]
        if len(held) > needed
    ]
    for subset in subsets:
        try:
            secret = combine_shares(subset, needed)
        except ValueError:
            continue
        if describe(secret) == wanted:
            return secret
    raise UnmaskingError(f"the shares of a secret of {site!r} do not fit what it announced")
