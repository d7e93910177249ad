"""TesNet whose basis vectors stay orthonormal, at the sites and in their mean."""

from __future__ import annotations

from dataclasses import replace

from vitrail.config import schema
from vitrail.methods.base.method import METHODS
from vitrail.methods.base.stage import Stage
from vitrail.methods.base.subspace_recipe import RIEMANNIAN_ADAM
from vitrail.methods.tesnet import BasisOptions, TesNet


class StiefelOptions(BasisOptions):
    """`align` turns each site's frame inside its span towards the one that was sent."""

    align: bool = True


@METHODS.register("tesnet-stiefel")
class TesNetStiefel(TesNet):
    """Frames step on the Stiefel manifold; the mean is the polar factor after alignment."""

    summary = "federated TesNet on the Stiefel manifold"
    Options = StiefelOptions
    model = "tesnet-stiefel"
    optimizer = RIEMANNIAN_ADAM

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """As TesNet, with the mean of frames."""
        rule = "stiefel" if self.options.align else "stiefel-plain"
        table = {**self.table, "prototypes": rule}
        return tuple(replace(stage, table=table) for stage in super().stages(run))
