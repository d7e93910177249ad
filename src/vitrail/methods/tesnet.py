"""TesNet across sites: FedAvg of everything."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vitrail.config import schema
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.prototype_recipe import ADAM
from vitrail.methods.base.stage import Stage
from vitrail.methods.base.subspace_recipe import make_basis_stages

Epochs = Annotated[int, Field(ge=1)]


class BasisOptions(Options):
    """Epochs of the phases around `run.local_epochs` joint ones."""

    warm_epochs: Epochs = 5
    last_epochs: Epochs = 12


@METHODS.register("tesnet")
class TesNet(Method):
    """The plain federation of TesNet: basis vectors are averaged number by number."""

    summary = "federated TesNet, everything averaged"
    paper = "Wang et al. 2021 (TesNet, ICCV)"
    Options = BasisOptions
    model = "tesnet"
    optimizer = ADAM
    weighting = "uniform"
    reference = True

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm, then joint and last layer."""
        del run
        return make_basis_stages(self.options.warm_epochs, self.options.last_epochs)
