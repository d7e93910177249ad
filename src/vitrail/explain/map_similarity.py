"""How close two explanations of one image are: map against map, prototypes, subspaces."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import DataError
from vitrail.explain.faithfulness import rank_correlation

WHITE = 255.0
_C1, _C2 = (0.01 * WHITE) ** 2, (0.03 * WHITE) ** 2


def is_constant(map_: Tensor) -> bool:
    """Whether a map says nothing: one value everywhere, or values that are not finite."""
    return not bool(torch.isfinite(map_).all()) or float(map_.max() - map_.min()) == 0.0


def scale_map(map_: Tensor) -> Tensor:
    """A map from 0 at its least to 255 at its greatest value, in float64."""
    value = map_.double()
    low, high = value.min(), value.max()
    return (value - low) / (high - low) * WHITE


def mse(a: Tensor, b: Tensor) -> float:
    """The mean squared difference of two maps."""
    return float((a.double() - b.double()).square().mean())


def psnr(a: Tensor, b: Tensor, largest: float = WHITE) -> float:
    """10 log10(largest^2 / MSE) in decibels; infinite for equal maps."""
    error = mse(a, b)
    return math.inf if error == 0 else 10 * math.log10(largest**2 / error)


def ssim(a: Tensor, b: Tensor) -> float:
    """Structural similarity of two maps [H, W] of 0..255, the mean over Gaussian windows
    (Wang et al. 2004)."""
    # imported when asked for: it takes longer than the rest of this package together
    from torchmetrics.functional.image import structural_similarity_index_measure as windowed

    pair = [x.double()[None, None] for x in (a, b)]
    value = windowed(pair[0], pair[1], data_range=WHITE)
    return float(value if isinstance(value, Tensor) else value[0])


def global_ssim(a: Tensor, b: Tensor) -> float:
    """Structural similarity with the whole map as the only window (TIP, equation 14)."""
    x, y = a.double().flatten(), b.double().flatten()
    mx, my = x.mean(), y.mean()
    both = ((x - mx) * (y - my)).mean()
    vx, vy = (x - mx).square().mean(), (y - my).square().mean()
    top = (2 * mx * my + _C1) * (2 * both + _C2)
    return float(top / ((mx.square() + my.square() + _C1) * (vx + vy + _C2)))


def top_overlap(a: Tensor, b: Tensor, share: float = 0.1) -> float:
    """The share of the strongest pixels of one map that are the other's too; chance is `share`."""
    count = max(1, int(share * a.numel()))
    tops = [
        set(torch.argsort(x.flatten().double(), descending=True, stable=True)[:count].tolist())
        for x in (a, b)
    ]
    return len(tops[0] & tops[1]) / count


def compare_maps(a: Tensor, b: Tensor) -> dict[str, float] | None:
    """All figures of two maps [H, W] of one image; None where one of them is constant.

    `mse`, `psnr`, `ssim` and `global_ssim` are of the maps scaled to 0..255; `raw_mse` and
    `raw_psnr` of the maps as they are, with the first map's range as the largest value.
    """
    if a.shape != b.shape or a.dim() != 2:
        raise DataError(f"maps of {tuple(a.shape)} and {tuple(b.shape)} do not compare")
    if is_constant(a) or is_constant(b):
        return None
    x, y = scale_map(a), scale_map(b)
    return {
        "mse": mse(x, y),
        "psnr": psnr(x, y),
        "ssim": ssim(x, y),
        "global_ssim": global_ssim(x, y),
        "raw_mse": mse(a, b),
        "raw_psnr": psnr(a, b, float(a.max() - a.min())),
        "rank_correlation": rank_correlation(a, b),
        "top_overlap": top_overlap(a, b),
    }


def average_metrics(figures: Sequence[dict[str, float]]) -> dict[str, float | None]:
    """The mean of each figure; decibels that are infinite are left out, None where all are."""
    means: dict[str, float | None] = {}
    for name in figures[0] if figures else ():
        values = [one[name] for one in figures if math.isfinite(one[name])]
        means[name] = float(np.mean(values)) if values else None
    return means
