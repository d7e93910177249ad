"""The analytic Gaussian mechanism: exactly how much noise a release of bounded sensitivity needs.

Balle and Wang 2018, "Improving the Gaussian Mechanism for Differential Privacy", arXiv:1805.06530.
Unlike sqrt(2 ln(1.25/delta)) it is tight, and it holds for any epsilon above 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vitrail.errors import ConfigError

_STEPS = 200  # halvings: more than enough for float64
_LARGEST = 1e12


def compute_delta(eps: float, sigma: float, sensitivity: float) -> float:
    """The smallest delta at which noise of deviation `sigma` is (eps, delta)-private (theorem 8):

    Phi(s / 2 sigma - eps sigma / s) - exp(eps) Phi(-s / 2 sigma - eps sigma / s).
    """
    from scipy.special import log_ndtr  # slow to import, seldom needed

    _check(sensitivity=(sensitivity, 0.0), sigma=(sigma, 0.0))
    if sensitivity == 0:
        return 0.0
    if sigma == 0:
        return 1.0
    ratio = sensitivity / sigma
    near, far = ratio / 2 - eps / ratio, -ratio / 2 - eps / ratio
    first = float(log_ndtr(near))
    second = eps + float(log_ndtr(far))  # never above `first`
    return math.exp(first) * -math.expm1(min(0.0, second - first))


def compute_sigma(eps: float, delta: float, sensitivity: float) -> float:
    """The least standard deviation of Gaussian noise that makes a release (eps, delta)-private."""
    _check(eps=(eps, None), sensitivity=(sensitivity, 0.0))
    _check_delta(delta)
    if sensitivity == 0:
        return 0.0
    low, high = 0.0, 1.0
    while compute_delta(eps, high, 1.0) > delta:
        low, high = high, 2 * high
        if high > _LARGEST:
            raise ConfigError(
                f"no amount of noise gives epsilon {eps:g} at delta {delta:g}",
                where="epsilon, delta",
                hint="Raise one of them.",
            )
    return sensitivity * _find_least(lambda x: compute_delta(eps, x, 1.0) <= delta, low, high)


def compute_epsilon(sigma: float, delta: float, sensitivity: float) -> float:
    """The least epsilon that noise of deviation `sigma` gives; infinite without noise."""
    _check(sigma=(sigma, 0.0), sensitivity=(sensitivity, 0.0))
    _check_delta(delta)
    if compute_delta(0.0, sigma, sensitivity) <= delta:
        return 0.0
    if sigma == 0 or sensitivity / sigma > _LARGEST:
        return math.inf
    high = 1.0
    while compute_delta(high, sigma, sensitivity) > delta:
        high *= 2
    return _find_least(lambda x: compute_delta(x, sigma, sensitivity) <= delta, 0.0, high)


def _find_least(enough: Callable[[float], bool], low: float, high: float) -> float:
    """The least number that is enough, found from above, so that rounding costs no privacy."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(**values: tuple[float, float | None]) -> None:
    """Finite numbers, at least 0 or, without a bound, above it."""
    for name, (value, least) in values.items():
        if not math.isfinite(value) or (value <= 0 if least is None else value < least):
            raise ConfigError(
                f"{name} must be a finite number {'above' if least is None else 'from'} 0, "
                f"not {value}",
                where=name,
            )


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"delta must lie between 0 and 1, not {delta}", where="delta")
