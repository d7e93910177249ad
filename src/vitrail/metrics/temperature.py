"""Temperature scaling: one number that makes a model as sure as it is right.

Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv:1706.04599.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_LOW, _HIGH = 0.05, 20.0  # beyond these a fit says that there is nothing to fit


def fit_temperature(logits: Floats, labels: Integers) -> float:
    """The temperature T with the least negative log-likelihood under softmax(logits / T)."""
    from scipy.optimize import minimize_scalar  # half a second, and most never need it

    values = np.asarray(logits, np.float64)
    if len(values) == 0:
        raise ValueError("a temperature cannot be fitted to no images")

    def loss(log_temperature: float) -> float:
        scaled = values / np.exp(log_temperature)
        chosen = scaled[np.arange(len(labels)), labels]
        return float(np.mean(logsumexp(scaled, axis=1) - chosen))

    best = minimize_scalar(loss, bounds=(np.log(_LOW), np.log(_HIGH)), method="bounded")
    return float(np.exp(best.x))


def apply_temperature(logits: Floats, temperature: float) -> Floats:
    """Probabilities softmax(logits / T) over the last axis."""
    scaled = np.asarray(logits, np.float64) / temperature
    probabilities: Floats = np.exp(scaled - logsumexp(scaled, axis=-1, keepdims=True))
    return probabilities
