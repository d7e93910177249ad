"""The accountant: what noise costs over a whole run, and how much of it a target epsilon needs.

Sampled Gaussian steps are composed by privacy loss distributions (Koskela et al. 2020,
arXiv:1906.03049) or by Renyi divergences (Mironov et al. 2019, arXiv:1908.10530), both from the
library dp-accounting. Without sampling, Gaussian steps compose in closed form.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Literal

from vitrail.errors import ConfigError
from vitrail.grid_noise import reserve_delta
from vitrail.release.accounting import gaussian

AccountantName = Literal["pld", "rdp"]
GRID = 1e-3  # of the losses; rounded up, so that the figure is an upper bound
ORDERS = (1.25, 1.5, 1.75, *range(2, 64), 80, 96, 128, 256, 512, 1024)
_PRECISION = 1e-3  # of calibrated noise, on the side of more
_LEAST_SAMPLED = 0.1  # noise below which sampling is not counted: the losses would fill the memory
_LEVELS = 12  # of noise, that a schedule is rounded down to
_MOST = 14.0  # of the logarithm of a noise


@dataclass(frozen=True)
class Event:
    """Gaussian noise of `noise` times the sensitivity, added `times` times.

    `rate` below 1 means that each time every unit takes part by a coin of its own (Poisson
    sampling) that the adversary does not see.
    """

    noise: float
    rate: float = 1.0
    times: int = 1

    def __post_init__(self) -> None:
        if not (self.noise >= 0 and 0 <= self.rate <= 1 and self.times >= 0):
            raise ConfigError(f"there is no such private step: {self}", where="release")


def compute_epsilon(events: Iterable[Event], delta: float, how: AccountantName = "pld") -> float:
    """The epsilon that all events together cost at `delta`; infinite without noise.

    A millionth of delta is kept for the samplers (`grid_noise.RESERVED`).

    A schedule with many amounts of noise is accounted as if it had fewer, never larger ones: an
    upper bound that takes seconds instead of minutes.
    """
    return _compute_cached_epsilon(_round_to_levels(merge_events(events)), delta, how)


def calibrate_noise(
    target: float, delta: float, shape: Sequence[Event], how: AccountantName = "pld"
) -> float:
    """The least factor on the noise of every event that keeps the run within `target`.

    `shape` says how the noise of the events relates to each other.
    """
    if not (target > 0 and math.isfinite(target)):
        raise ConfigError(f"epsilon must be a finite number above 0, not {target}", where="epsilon")
    events = merge_events(shape)
    if not events:
        return 0.0

    def cost(factor: float) -> float:
        return compute_epsilon([replace(e, noise=e.noise * factor) for e in events], delta, how)

    if any(event.noise == 0 for event in events):
        raise ConfigError("steps without noise cannot be calibrated", where="release")
    root = _find_crossing(cost, target, _guess(target, delta, events))
    factor = math.exp(root) * (1 + _PRECISION)
    while cost(factor) > target:  # the root is known to a tolerance only
        factor *= 1 + _PRECISION
    return factor


def _guess(target: float, delta: float, events: tuple[Event, ...]) -> float:
    """About what the noise will be: sampled steps cost rate^2 times as much as whole ones."""
    whole = sum(e.times * e.rate**2 / e.noise**2 for e in events)
    return max(0.3, math.sqrt(2 * whole * math.log(1.25 / delta)) / target)


def _find_crossing(cost: Callable[[float], float], target: float, guess: float) -> float:
    """The logarithm of the factor at which a falling cost meets the target."""
    from scipy.optimize import brentq  # a second to import, seldom needed

    def gap(x: float) -> float:
        return math.log(max(cost(math.exp(x)), 1e-300) / target)

    low = high = math.log(guess)
    while gap(high) > 0:
        low, high = high, high + 0.5
        if high > _MOST:
            raise ConfigError(
                f"no amount of noise keeps this run within epsilon {target:g}",
                where="epsilon, delta",
                hint="Raise one of them, or make fewer steps.",
            )
    while gap(low) <= 0:
        low, high = low - 0.5, low
        if low < -_MOST:
            return low
    return float(brentq(gap, low, high, xtol=_PRECISION / 2))


def merge_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """The same events with equal ones counted together; those that cost nothing left out."""
    times: dict[tuple[float, float], int] = {}
    for event in events:
        if event.times and event.rate > 0:
            key = (event.noise, event.rate)
            times[key] = times.get(key, 0) + event.times
    return tuple(Event(noise, rate, count) for (noise, rate), count in sorted(times.items()))


def _round_to_levels(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The noise of sampled events rounded down to a few levels between the least and the most."""
    sampled = [e for e in events if e.rate < 1 and e.noise > 0]
    if len({e.noise for e in sampled}) <= _LEVELS:
        return events
    least, most = min(e.noise for e in sampled), max(e.noise for e in sampled)
    step = math.log(most / least) / (_LEVELS - 1)
    rounded = []
    for event in events:
        if event in sampled:
            level = math.floor(math.log(event.noise / least) / step + 1e-9)
            event = replace(event, noise=min(event.noise, least * math.exp(level * step)))
        rounded.append(event)
    return merge_events(rounded)


@lru_cache(maxsize=4096)
def _compute_cached_epsilon(events: tuple[Event, ...], delta: float, how: AccountantName) -> float:
    if not 0 < delta < 1:
        raise ConfigError(f"delta must lie between 0 and 1, not {delta}", where="delta")
    if not events:
        return 0.0
    delta = reserve_delta(delta)
    if any(event.noise == 0 for event in events):
        return math.inf
    if how == "pld" and any(event.rate < 1 and event.noise < _LEAST_SAMPLED for event in events):
        events = tuple(replace(event, rate=1.0) for event in events)  # an upper bound
    if how == "pld" and all(event.rate == 1 for event in events):
        return gaussian.compute_epsilon(combine_noise(events), delta, 1.0)
    library = import_library()
    accountant = (
        library.rdp.RdpAccountant(list(ORDERS))
        if how == "rdp"
        else library.pld.PLDAccountant(value_discretization_interval=GRID)
    )
    with silence_warnings():
        for event in events:
            step = library.GaussianDpEvent(event.noise)
            if event.rate < 1:
                step = library.PoissonSampledDpEvent(event.rate, step)
            accountant.compose(step, event.times)
        return float(accountant.get_epsilon(delta))


def combine_noise(events: Iterable[Event]) -> float:
    """The one noise that is worth all unsampled events: 1 / sqrt(sum of times / noise^2)."""
    return 1 / math.sqrt(sum(event.times / event.noise**2 for event in events))


@contextmanager
def silence_warnings() -> Iterator[None]:
    """The library warns about each order it leaves out, which costs tightness and nothing else."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def import_library() -> ModuleType:
    """The library dp-accounting, or a sentence that says how to get it."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "accounting for sampled steps needs the package dp-accounting, which is not installed",
            where="release",
            hint='Install it with pip install "vitrail[privacy]".',
        ) from None
    library: ModuleType = dp_accounting
    return library
