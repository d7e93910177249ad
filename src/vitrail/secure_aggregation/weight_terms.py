"""What a site knows of the weights of a round before it adds up: the terms, and its own images.

A server that chose them could give nearly all weight to one site and to another that works for it,
and read the first one's update off the sum. So a site holds the weights of everybody to the terms,
and its own to what it told. Each honest site checks its own: then those of all honest sites are the
true ones, and what a colluding site counts as is no more than the bound of the terms allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vitrail.aggregate.bounded_weights import bound_weights

_CLOSE = 1e-9


@dataclass(frozen=True)
class WeightTerms:
    """`own` is what this site counts as before the bound of the terms, None where that follows from
    what others told; `alike` says that everybody counts the same; `largest` is the bound, in
    medians; `factor` what the terms take off a site."""

    site: str
    own: float | None
    alike: bool
    largest: float | None
    factor: Callable[[str], float]

    def find_problem(self, weights: Mapping[str, float]) -> str | None:
        """Why these weights are not those of the terms, in one sentence, or None."""
        factors = {site: self.factor(site) for site in weights}
        if any(weights[site] != 0 for site, factor in factors.items() if factor == 0):
            return "a site that the terms leave without weight has some"
        bare = {site: weights[site] / factor for site, factor in factors.items() if factor > 0}
        if not all(math.isfinite(weight) and weight >= 0 for weight in bare.values()):
            return "a weight is not a number from 0 up"
        if self.alike and not all(_is_close(weight, 1.0) for weight in bare.values()):
            return "by the terms every site counts the same, and these weights differ"
        bounded = bound_weights(bare, self.largest)
        if not all(_is_close(weight, bounded[site]) for site, weight in bare.items()):
            return f"a site counts more than {self.largest:g} times the median site"
        if self.own is None or self.site not in bare:
            return None
        mine = bound_weights({**bare, self.site: self.own}, self.largest)[self.site]
        if not _is_close(bare[self.site], mine):
            return "what this site counts as is not what follows from its images and the terms"
        return None


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_CLOSE)
