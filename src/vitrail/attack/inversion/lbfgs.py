"""L-BFGS for many independent problems at once, each with its own memory and step.

Liu and Nocedal (1989). A row whose step does not lower its loss enough halves it; a row that
cannot go on rests while the others do. All state is in plain tensors, so it can be saved.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]  # rows [R, d] to losses [R]
_ENOUGH = 1e-4  # Armijo's share of the decrease that the slope promises


class Lbfgs:
    """Minimize each row of `x` [R, d]. `memory` pairs are kept for every row."""

    def __init__(self, x: Tensor, memory: int = 20, halvings: int = 12) -> None:
        rows, size = x.shape
        self.x = x.clone()
        self.memory, self.halvings = memory, halvings
        self.steps = x.new_zeros(0, rows, size)
        self.turns = x.new_zeros(0, rows, size)
        self.loss = x.new_full((rows,), torch.inf)
        self.slope = torch.zeros_like(x)
        self.resting = torch.zeros(rows, dtype=torch.bool)

    def state(self) -> dict[str, Tensor]:
        """Everything, as tensors."""
        names = ("x", "steps", "turns", "loss", "slope", "resting")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved state."""
        for name, tensor in state.items():
            setattr(self, name, tensor.clone())

    def step(self, loss: Loss) -> None:
        """One iteration of every row that is not at rest."""
        if torch.isinf(self.loss).all():
            self.loss, self.slope = _compute_loss_and_gradient(loss, self.x)
        direction = self._direction()
        drop = (direction * self.slope).sum(1)
        uphill = drop >= 0
        direction = torch.where(uphill[:, None], -self.slope, direction)
        drop = torch.where(uphill, -self.slope.square().sum(1), drop)
        size = torch.ones_like(self.loss)
        if not len(self.steps):
            size = (1.0 / self.slope.abs().sum(1).clamp_min(1e-12)).clamp_max(1.0)
        waiting = ~self.resting
        new_x, new_loss, new_slope = self.x.clone(), self.loss.clone(), self.slope.clone()
        for _ in range(self.halvings):
            if not waiting.any():
                break
            at = torch.nonzero(waiting)[:, 0]
            tried = self.x + torch.where(waiting, size, 0.0)[:, None] * direction
            value, slope = _compute_loss_and_gradient(loss, tried)
            good = value <= self.loss + _ENOUGH * size * drop
            good &= waiting & torch.isfinite(value) & torch.isfinite(slope).all(1)
            new_x[good], new_loss[good], new_slope[good] = tried[good], value[good], slope[good]
            waiting = waiting & ~good
            size[at] = torch.where(waiting[at], size[at] / 2, size[at])
        self.resting |= waiting
        self._remember(new_x - self.x, new_slope - self.slope)
        self.x, self.loss, self.slope = new_x, new_loss, new_slope

    def _remember(self, step: Tensor, turn: Tensor) -> None:
        """Keep the pair; where it has no positive curvature it counts as nothing (zeros)."""
        curved = (step * turn).sum(1) > 1e-10 * turn.square().sum(1)
        step, turn = (torch.where(curved[:, None], t, 0.0)[None] for t in (step, turn))
        self.steps = torch.cat([self.steps, step])[-self.memory :]
        self.turns = torch.cat([self.turns, turn])[-self.memory :]

    def _direction(self) -> Tensor:
        """The two-loop recursion, row by row at once."""
        q = self.slope.clone()
        products = (self.steps * self.turns).sum(2)  # [m, R]
        inverse = torch.where(products > 0, 1 / products.clamp_min(1e-30), 0.0)
        shares = torch.zeros_like(products)
        for i in reversed(range(len(self.steps))):
            shares[i] = inverse[i] * (self.steps[i] * q).sum(1)
            q -= shares[i][:, None] * self.turns[i]
        scale = torch.ones_like(self.loss)
        for i in range(len(self.steps)):  # the newest pair that counts sets the scale
            squares = self.turns[i].square().sum(1)
            scale = torch.where(products[i] > 0, products[i] / squares.clamp_min(1e-30), scale)
        q *= scale[:, None]
        for i in range(len(self.steps)):
            share = inverse[i] * (self.turns[i] * q).sum(1)
            q += (shares[i] - share)[:, None] * self.steps[i]
        return -q


def _compute_loss_and_gradient(loss: Loss, x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.detach().requires_grad_()
    value = loss(leaf)
    (slope,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), slope
