"""How much an image looks like a site's own: a logistic regression that may leave the site.

Its minimizer moves by at most 2 / (N L) when one of N examples of norm 1 at most is replaced and L
weighs the penalty (Chaudhuri et al. 2011, arXiv:0912.0071), so Gaussian noise makes it private.
"""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS, _TOLERANCE = 100, 1e-10


def to_unit_vectors(features: Tensor) -> Tensor:
    """Features [N, d] as vectors [N, d + 1] of norm 1 in float64, the last number a constant."""
    wide = torch.nn.functional.normalize(features.double(), dim=1)
    return torch.cat([wide, torch.ones(len(wide), 1, dtype=torch.float64)], dim=1) / 2**0.5


def fit_regression(positives: Tensor, negatives: Tensor, penalty: float) -> Tensor:
    """The w that minimizes mean log(1 + exp(-t w.x)) + (penalty / 2) |w|^2, t = 1 for
    `positives` and -1 for `negatives`, by Newton's method with halved steps."""
    x = torch.cat([positives, negatives])
    x = x * torch.cat([torch.ones(len(positives)), -torch.ones(len(negatives))]).double()[:, None]
    w = torch.zeros(x.shape[1], dtype=torch.float64)
    eye = penalty * torch.eye(x.shape[1], dtype=torch.float64)
    for _ in range(_STEPS):
        wrong = torch.sigmoid(-x @ w)
        gradient = penalty * w - (wrong @ x) / len(x)
        if torch.linalg.vector_norm(gradient) < _TOLERANCE:
            break
        hessian = (x.T * (wrong * (1 - wrong))) @ x / len(x) + eye
        step = torch.linalg.solve(hessian, gradient)
        before, scale = _loss(x, w, penalty), 1.0
        while scale > 1e-6 and _loss(x, w - scale * step, penalty) > before:
            scale /= 2
        w = w - scale * step
    return w


def sensitivity(count: int, penalty: float) -> float:
    """How far the minimizer over `count` examples moves at most if one of them is replaced."""
    return 2 / (count * penalty)


def score_features(features: Tensor, w: Tensor) -> Tensor:
    """The score of images by their features: the regression's probability, in (0, 1)."""
    return torch.sigmoid(to_unit_vectors(features) @ w.double())


def _loss(x: Tensor, w: Tensor, penalty: float) -> float:
    fit = torch.nn.functional.softplus(-x @ w).mean()
    return float(fit + penalty / 2 * w.square().sum())
