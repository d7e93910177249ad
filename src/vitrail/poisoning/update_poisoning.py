"""Attacks through crafted updates that spoil the model for everybody."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import torch
from torch import Tensor

from vitrail.poisoning.attack import POISONINGS, HostileView, Poisoning
from vitrail.release.update import Update


@POISONINGS.register("sign-flip")
class SignFlip(Poisoning):
    """Send the trained change with the other sign."""

    paper = "Li et al. 2019, arXiv:1811.03761 (RSA)"
    meaning = "how many times its own change, backwards"

    def craft(self, view: HostileView) -> list[Update]:
        """Minus `strength` times what was trained."""
        times = -self.read_strength(view)
        return [view.dress(times * view.flatten(update), update) for update in view.trained]


class Colluding(Poisoning):
    """An attack in which all hostile sites send the same change."""

    def aim(self, view: HostileView, honest: Tensor) -> Tensor:
        """The change, from those of the honest sites [sites, numbers]."""
        raise NotImplementedError(f"{type(self).__name__} must aim")

    def craft(self, view: HostileView) -> list[Update]:
        """One change for all."""
        change = self.aim(view, view.stack_honest())
        return [view.dress(change, update) for update in view.trained]


@POISONINGS.register("little-is-enough")
class LittleIsEnough(Colluding):
    """Stay z standard deviations off the honest mean, where enough honest sites are farther off."""

    paper = "Baruch et al. 2019, arXiv:1902.06156, algorithm 3"
    meaning = "how many times the z of the paper"

    def aim(self, view: HostileView, honest: Tensor) -> Tensor:
        """mean - z std, coordinate by coordinate."""
        hostile, count = len(view.trained), len(honest) + len(view.trained)
        supporters = count // 2 + 1 - hostile
        share = (len(honest) - supporters) / max(1, len(honest))
        z = NormalDist().inv_cdf(min(max(share, 0.01), 0.99))
        return honest.mean(0) - self.read_strength(view) * z * _deviate(honest)


@POISONINGS.register("inner-product")
class InnerProduct(Colluding):
    """Send minus a multiple of the honest mean, so that the sum points backwards."""

    paper = "Xie et al. 2020, arXiv:1903.03936"
    strength = 0.5
    meaning = "epsilon: how many times the honest mean, backwards"

    def aim(self, view: HostileView, honest: Tensor) -> Tensor:
        """- epsilon times the mean."""
        return -self.read_strength(view) * honest.mean(0)


class _Hidden(Colluding):
    """As far as possible along minus the honest deviations, hidden among honest distances."""

    paper = "Shejwalkar and Houmansadr 2021, NDSS"
    meaning = "the share of the largest step that stays hidden"

    def is_hidden(self, away: Tensor, between: Tensor) -> bool:
        """Whether squared distances to honest changes are among those between them."""
        raise NotImplementedError(f"{type(self).__name__} must say what is hidden")

    def aim(self, view: HostileView, honest: Tensor) -> Tensor:
        """mean + gamma * direction with the largest hidden gamma, by halving."""
        mean, direction = honest.mean(0), -_deviate(honest)
        if len(honest) < 2 or not bool(direction.any()):
            return mean
        between = torch.cdist(honest, honest).square()
        gamma = find_largest(
            lambda g: self.is_hidden((mean + g * direction - honest).square().sum(1), between)
        )
        return mean + self.read_strength(view) * gamma * direction


@POISONINGS.register("min-max")
class MinMax(_Hidden):
    """The largest distance to an honest change is at most the largest between honest ones."""

    def is_hidden(self, away: Tensor, between: Tensor) -> bool:
        """Compare maxima."""
        return bool(away.max() <= between.max())


@POISONINGS.register("min-sum")
class MinSum(_Hidden):
    """The sum of squared distances is at most the largest such sum of an honest change."""

    def is_hidden(self, away: Tensor, between: Tensor) -> bool:
        """Compare sums."""
        return bool(away.sum() <= between.sum(1).max())


def find_largest(
    is_allowed: Callable[[float], bool], start: float = 10.0, steps: int = 30
) -> float:
    """The largest number that is allowed, found by halving; what is below an allowed one is too."""
    low, high = 0.0, start
    while is_allowed(high) and high < 1e6:
        low, high = high, 2 * high
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    return low


def _deviate(honest: Tensor) -> Tensor:
    return honest.std(0, correction=0)
