"""Riemannian SGD: one optimizer that steps flat parameters and frames, each in its geometry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.geometry.euclidean import EUCLIDEAN
from vitrail.geometry.manifold import Manifold


@dataclass(frozen=True)
class ParameterGroup:
    """Tensors that share a manifold and a rate; `retraction` None is the manifold's default."""

    tensors: Sequence[Tensor]
    manifold: Manifold = EUCLIDEAN
    lr: float | None = None
    retraction: str | None = None


class RiemannianSGD:
    """Gradient descent with momentum along manifolds.

    v <- momentum v + grad, x <- R(x, -lr v), then v is projected to the new tangent space. On
    flat parameters that is `torch.optim.SGD`. It has that class's two verbs but is none, because
    to make one imports the compiler, two seconds.
    """

    def __init__(
        self,
        parameters: Iterable[ParameterGroup | Tensor],
        lr: float,
        momentum: float = 0.0,
    ) -> None:
        if not lr > 0 or not 0 <= momentum < 1:
            raise ValueError(f"lr must be over 0 and momentum in [0, 1), not {lr} and {momentum}")
        groups = [p if isinstance(p, ParameterGroup) else ParameterGroup((p,)) for p in parameters]
        self.lr, self.momentum = lr, momentum
        self.items = [(tensor, group) for group in groups for tensor in group.tensors]
        for tensor, group in self.items:
            reason = group.manifold.problem(tensor.detach())
            if reason is not None:
                raise ValueError(f"a parameter is no point of {group.manifold.name}: {reason}")
            group.manifold.retraction(group.retraction)
        self.velocities: list[Tensor | None] = [None] * len(self.items)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for tensor, _ in self.items:
            tensor.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient, in place."""
        for at, (tensor, group) in enumerate(self.items):
            if tensor.grad is None:
                continue
            lr = self.lr if group.lr is None else group.lr
            moved, self.velocities[at] = descend(
                group.manifold,
                tensor.detach(),
                tensor.grad,
                self.velocities[at],
                lr,
                self.momentum,
                group.retraction,
            )
            tensor.copy_(moved)


def descend(
    manifold: Manifold,
    x: Tensor,
    gradient: Tensor,
    velocity: Tensor | None,
    lr: float,
    momentum: float = 0.0,
    retraction: str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """One step of descent: the new point, and the velocity in the tangent space there.

    Points whose step is not finite, or too long for its square to be, become NaN, as they
    would in flat space sooner or later, instead of an error from the eigenvalue routine.
    """
    tangent = manifold.project(x, gradient)
    if momentum and velocity is not None:
        tangent = (momentum * velocity).add_(tangent)
    if manifold is EUCLIDEAN:
        return x.add(tangent, alpha=-lr), tangent if momentum else None
    fine = torch.isfinite((max(1.0, lr) * tangent).square().sum((-2, -1)))[..., None, None]
    healthy = bool(fine.all())
    safe = tangent if healthy else torch.where(fine, tangent, 0.0)
    moved = manifold.retraction(retraction)(x, -lr * safe)
    if not healthy:
        moved = torch.where(fine, moved, torch.nan)
    return moved, manifold.project(moved, tangent) if momentum else None
