"""Weights of sites, of one number a site or one a site and class, as shares that add up to 1."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_shares(weights: Tensor | None, frames: Tensor) -> Tensor:
    """Weights [sites] or [sites, ...] as float64 shares [sites, ...] of frames [sites, ..., n, p].

    Where nobody has any weight everybody counts the same.
    """
    lead = frames.shape[:-2]
    if weights is None:
        return torch.full(lead, 1.0 / len(frames), dtype=torch.float64, device=frames.device)
    weights = torch.as_tensor(weights, dtype=torch.float64, device=frames.device)
    if weights.shape not in (lead[:1], lead):
        raise ValueError(
            f"weights of shape {list(weights.shape)} do not fit {list(lead)} frames: "
            "one a site, or one a site and class"
        )
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError("weights must be finite and not negative")
    weights = weights.reshape(*weights.shape, *[1] * (len(lead) - weights.dim())).expand(lead)
    total = weights.sum(0)
    even = torch.full_like(weights, 1.0 / len(frames))
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), even)
