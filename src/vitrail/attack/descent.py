"""How an attacker trains a small network of its own: Adam, slower in the last third."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

from vitrail.attack.budget import Tell


def descend(
    leaves: Sequence[Tensor],
    loss: Callable[[], Tensor],
    steps: int,
    tell: Tell | None = None,
    late: Callable[[], bool] = lambda: False,
) -> int:
    """Move `leaves` so that `loss`, which draws its own batch at each call, becomes small; returns
    how many steps were made before it was too `late`."""
    parameters = list(leaves)
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    counts = [torch.zeros(()) for _ in parameters]
    for step in range(steps):
        if late():
            return step
        value = loss()
        slopes = torch.autograd.grad(value, parameters)
        with torch.no_grad():
            adam(
                parameters, list(slopes), means, squares, [], counts, foreach=False, amsgrad=False,
                beta1=0.9, beta2=0.999, lr=1e-3 if step < 0.7 * steps else 2e-4,
                weight_decay=0.0, eps=1e-8, maximize=False,
            )  # fmt: skip
        if tell is not None:
            tell(step + 1, steps, f"error {float(value.detach()):.4f}")
    return steps
