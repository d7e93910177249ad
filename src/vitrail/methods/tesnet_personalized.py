"""TesNet with basis vectors of each site's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from vitrail.config import schema
from vitrail.methods.base.method import METHODS
from vitrail.methods.base.stage import Stage
from vitrail.methods.tesnet import BasisOptions, TesNet


class PersonalizedOptions(BasisOptions):
    """`basis` is trained and stays home, or frozen as it was drawn (the paper's words)."""

    basis: Literal["home", "frozen"] = "home"


@METHODS.register("tesnet-personalized")
class TesNetPersonalized(TesNet):
    """The subspace layer never leaves its site; the rest is FedAvg."""

    summary = "federated TesNet, the subspace layer at home"
    Options = PersonalizedOptions

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """As TesNet, without the basis in what travels."""
        table = {**self.table, "prototypes": self.options.basis}
        return tuple(replace(stage, table=table) for stage in super().stages(run))
