"""What a guarantee for one image is worth for a patient who has several.

With k images, each drawn by a coin of its own, a step holds j of them with the binomial
probability, and j of them move it by at most j times the sensitivity: a mixture of Gaussians, which
the accountant composes (Ganesh 2024, arXiv:2401.10294). Without sampling it is the Gaussian
mechanism with k times the sensitivity. Both are upper bounds that some patient reaches; the general
bound (k epsilon, k exp((k - 1) epsilon) delta) is never needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from vitrail.release.accounting import gaussian
from vitrail.release.accounting.accountant import (
    Event,
    combine_noise,
    import_library,
    merge_events,
    silence_warnings,
)

_GRID = 1e-2  # of the losses of one image; those of k images are coarser by k, rounded up
_MOST = 64  # amounts of images that are told apart in a step; others are rounded up


def compute_group_epsilon(events: Iterable[Event], size: int, delta: float) -> float:
    """The epsilon at `delta` for `size` images together, of events that protect one."""
    return _compute_cached(merge_events(events), size, delta)


@lru_cache(maxsize=1024)
def _compute_cached(events: tuple[Event, ...], size: int, delta: float) -> float:
    if not events or size == 0:
        return 0.0
    if any(event.noise == 0 for event in events):
        return math.inf
    if all(event.rate == 1 for event in events):
        return gaussian.compute_epsilon(combine_noise(events), delta, float(size))
    library = import_library()
    accountant = library.pld.PLDAccountant(value_discretization_interval=_GRID * size)
    with silence_warnings():
        for event in events:
            counts, chances = list_group_draws(size, event.rate)
            step = library.dp_event.MixtureOfGaussiansDpEvent(event.noise, counts, chances)
            accountant.compose(step, event.times)
        return float(accountant.get_epsilon(delta))


def list_group_draws(size: int, rate: float) -> tuple[list[float], list[float]]:
    """How many of `size` images a step may hold, and the chance of each number.

    Of many images the numbers are rounded up to a few: more images in a step cost more.
    """
    from scipy.stats import binom

    step = -(-size // _MOST)
    chances: dict[int, float] = {}
    for count in range(size + 1):
        rounded = min(size, -(-count // step) * step)
        chances[rounded] = chances.get(rounded, 0.0) + float(binom.pmf(count, size, rate))
    kept = {count: chance for count, chance in chances.items() if chance > 0}
    whole = math.fsum(kept.values())
    return [float(c) for c in kept], [chance / whole for chance in kept.values()]
