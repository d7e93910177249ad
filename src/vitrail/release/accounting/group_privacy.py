"""What a guarantee for one image is worth for a patient who has several.

With k images, each drawn by a coin of its own, a step holds j of them with the binomial
probability, and j of them move it by at most j times the sensitivity: a mixture of Gaussians, which
the accountant composes (Ganesh 2024, arXiv:2401.10294). Without sampling it is the Gaussian
mechanism with k times the sensitivity. Both are upper bounds that some patient reaches; the general
bound (k epsilon, k exp((k - 1) epsilon) delta) is never needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
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
_LARGEST = 2000.0  # images over squared noise, beyond which sampling is not counted: losses would
# fill memory and time, and terms with hardly any noise are read before anybody agreed to them
_MOST = 64  # amounts of images that are told apart in a step; others are rounded up


def compute_group_epsilon(events: Iterable[Event], size: int, delta: float) -> float:
    """The epsilon at `delta` for `size` images together, of events that protect one."""
    return compute_mixed_epsilon({size: events}, delta)


def compute_mixed_epsilon(groups: Mapping[int, Iterable[Event]], delta: float) -> float:
    """The same where some events hold so many of the images, by how many, and others another
    number: runs that a patient was in with more and fewer images."""
    merged = ((size, merge_events(events)) for size, events in sorted(groups.items()) if size)
    return _compute_cached(tuple((size, events) for size, events in merged if events), delta)


@lru_cache(maxsize=1024)
def _compute_cached(groups: tuple[tuple[int, tuple[Event, ...]], ...], delta: float) -> float:
    pairs = [(size, event) for size, events in groups for event in events]
    if not pairs:
        return 0.0
    if any(event.noise == 0 for _, event in pairs):
        return math.inf
    if any(size > _LARGEST * event.noise**2 for size, event in pairs if event.rate < 1):
        pairs = [(size, replace(event, rate=1.0)) for size, event in pairs]  # an upper bound
    if all(event.rate == 1 for _, event in pairs):
        scaled = [replace(event, noise=event.noise / size) for size, event in pairs]
        return gaussian.compute_epsilon(combine_noise(scaled), delta, 1.0)
    library = import_library()
    largest = max(size for size, _ in pairs)
    accountant = library.pld.PLDAccountant(value_discretization_interval=_GRID * largest)
    with silence_warnings():
        for size, event in pairs:
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
