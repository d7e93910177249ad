"""Rules by coordinate that stand some hostile or broken sites. They ignore weights."""

from __future__ import annotations

import math

from torch import Tensor

from vitrail.aggregate.rule import RULES, Metrics, PerSiteRule, Tensors


@RULES.register("median")
class Median(PerSiteRule):
    """The median of each coordinate (Yin et al. 2018, arXiv:1803.01498)."""

    weighs = False

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The middle value, or the mean of the two middle ones."""
        del weights, sent
        ordered = stack.sort(dim=0).values
        half = len(stack) // 2
        middle = ordered[half] if len(stack) % 2 else (ordered[half - 1] + ordered[half]) / 2
        return self.group.unpack(middle), {}


@RULES.register("trimmed-mean")
class TrimmedMean(PerSiteRule):
    """The mean of each coordinate without its largest and smallest values (Yin et al. 2018).

    At each end the share `aggregate.trim` of the sites is cut, rounded up: with any share above
    0 at least one value goes at each end.
    """

    weighs = False

    def find_shortage(self, count: int) -> str | None:
        """Something must be left between the two ends."""
        if count > 2 * self._count_trimmed(count):
            return None
        return (
            f"trimmed-mean cuts {self._count_trimmed(count)} of {count} values at each end "
            "(aggregate.trim), and none is left"
        )

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The mean of what is left."""
        del weights, sent
        drop = self._count_trimmed(len(stack))
        kept = stack.sort(dim=0).values[drop : len(stack) - drop]
        return self.group.unpack(kept.mean(dim=0)), {"trimmed": float(2 * drop)}

    def _count_trimmed(self, count: int) -> int:
        """Values cut at each end; what rounding adds to a whole number is no value more."""
        return math.ceil(self.options.trim * count - 1e-9)
