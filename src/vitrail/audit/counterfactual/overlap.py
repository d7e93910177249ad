"""How much of what a model looks at lies in a place, and how far two models look at the same."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from vitrail.explain.boxes import upsample
from vitrail.explain.evidence import Box


def compute_share_inside(seen: Tensor, boxes: Tensor | None, size: tuple[int, int]) -> float | None:
    """The mean share of activation maps [N, h, w], above their least value, in boxes [N, 4]."""
    if boxes is None:
        return None
    large = upsample(seen, *size)
    large = large - large.flatten(1).amin(1)[:, None, None]
    shares = []
    for one, (x0, y0, x1, y1) in zip(large, boxes.tolist(), strict=True):
        total = float(one.sum())
        shares.append(float(one[y0:y1, x0:x1].sum()) / total if total > 0 else 0.0)
    return float(np.mean(shares))


def mean_iou(one: Tensor, two: Tensor) -> float:
    """The mean intersection over union of boxes [N, 4], pair by pair."""
    pairs = zip(one.tolist(), two.tolist(), strict=True)
    return float(np.mean([iou((a, b, c, d), (e, f, g, h)) for (a, b, c, d), (e, f, g, h) in pairs]))


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes; 0 where both are empty."""
    wide = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    both = wide * high
    either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    return both / either if either > 0 else 0.0
