"""A site's steps away from the subspaces it received, clipped as one vector over all classes.

A site that sends back what it received makes no step, so neighbors differ by at most the clip,
however many classes there are; whole projectors of rank p differ by up to sqrt(2 p classes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from vitrail.geometry.subspace_step import compute_step, follow_step
from vitrail.release.defenses.additive import compute_norm, is_finite

_ROUNDING = 2.0**-22  # of each number of a frame: four times what two roundings to float32 do


def clip_steps(
    frames: Mapping[str, Tensor], received: Mapping[str, Tensor], clip: float
) -> tuple[dict[str, Tensor], float]:
    """The steps, jointly no longer than `clip`, in float64; and how long they were before.

    Frames that are not finite count as no step, and so do steps that are not: that training broke
    must not show.
    """
    still = {name: torch.zeros_like(received[name], dtype=torch.float64) for name in frames}
    if not is_finite(frames):
        return still, 0.0
    steps = {name: compute_step(received[name], frame) for name, frame in frames.items()}
    length = compute_norm(steps)
    if not math.isfinite(length):
        return still, 0.0
    scale = min(1.0, clip / length) if length else 1.0
    return {name: scale * step for name, step in steps.items()}, length


def follow_steps(
    steps: Mapping[str, Tensor], received: Mapping[str, Tensor], like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The frames where steps lead, in the types of `like`."""
    return {n: follow_step(received[n], step).to(like[n].dtype) for n, step in steps.items()}


def bound_rounding(shapes: Iterable[tuple[int, ...]], clip: float) -> float:
    """How much longer than `clip` steps can be once their frames were rounded to float32.

    A step is the frame divided by p x p matrices whose inverses are no larger than
    sqrt(1 + clip^2), so an error of the frame grows by at most 1 + clip^2.
    """
    numbers = sum(math.prod(shape) for shape in shapes)
    return _ROUNDING * math.sqrt(numbers) * (1 + clip**2)


def count_sites_for_a_step(noise: float, classes: int, n: int, p: int) -> int:
    """How many sites that agree it takes until their mean step stands out of noise in the sum.

    Steps of all classes have the length of the clip together, each 1/sqrt(classes) of it; the
    noise of a class has a spectral norm of about noise (sqrt(n - p) + sqrt(p)) clips.
    """
    return math.ceil(noise * math.sqrt(classes) * (math.sqrt(max(0, n - p)) + math.sqrt(p)))
