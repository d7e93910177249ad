"""TesNet across sites: FedAvg of everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from vitrail.config import schema
from vitrail.config.added_keys import added
from vitrail.local.phases.project_basis import ProjectBasis
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.prototype_recipe import ADAM, make_last_phase
from vitrail.methods.base.stage import Stage
from vitrail.methods.base.subspace_recipe import make_basis_stages

Epochs = Annotated[int, Field(ge=1)]


class BasisOptions(Options):
    """Epochs of the phases around `run.local_epochs` joint ones.

    `project` is TesNet's second stage, at the end and at home: basis vectors become directions of
    the site's own patches, and the last layer is tuned once more. The shared model stays as it is.
    """

    warm_epochs: Epochs = 5
    last_epochs: Epochs = 12
    project: bool = added(False)


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
        options = self.options
        stages = make_basis_stages(options.warm_epochs, options.last_epochs)
        if not options.project:
            return stages
        end = (ProjectBasis(), make_last_phase(options.last_epochs))
        return tuple(replace(stage, finish=end) for stage in stages)
