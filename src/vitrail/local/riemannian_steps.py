"""Steps of parts that are frames, on the flat buffers: Riemannian SGD with momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.geometry import GRASSMANN, STIEFEL, Manifold
from vitrail.geometry.riemannian_sgd import descend
from vitrail.local.optimizer import STEPPERS, OptimizerSettings, Stepper
from vitrail.models.flat import FlatModel
from vitrail.models.parts import Part


class RiemannianStepper:
    """Moves the frames of one part; Adam's settings leave it SGD, at the part's own rate.

    Weight decay does not apply: a frame has no length to shrink.
    """

    def __init__(
        self, model: FlatModel, part: Part, settings: OptimizerSettings, manifold: Manifold
    ) -> None:
        self.manifold = manifold
        self.lr, _ = settings.of(part)
        self.momentum = settings.momentum
        self.pairs = [
            (model.named[spec.name], model.grads[at : at + spec.size].view(spec.shape))
            for spec, at in zip(model.layout.specs, model.layout.offsets, strict=True)
            if spec.part == part
            and spec.geometry == manifold.name
            and spec.trainable
            and spec.name not in model.still
        ]
        self.velocities: list[Tensor | None] = [None] * len(self.pairs)

    @torch.no_grad()
    def step(self) -> None:
        """One retraction along minus the velocity, in place."""
        for at, (frames, gradient) in enumerate(self.pairs):
            moved, self.velocities[at] = descend(
                self.manifold, frames, gradient, self.velocities[at], self.lr, self.momentum
            )
            frames.copy_(moved)


@STEPPERS.register("grassmann")
def grassmann(model: FlatModel, part: Part, settings: OptimizerSettings) -> Stepper:
    """Steps of subspaces, by the closed-form arctan step."""
    return RiemannianStepper(model, part, settings, GRASSMANN)


@STEPPERS.register("stiefel")
def stiefel(model: FlatModel, part: Part, settings: OptimizerSettings) -> Stepper:
    """Steps of frames, back by QR."""
    return RiemannianStepper(model, part, settings, STIEFEL)
