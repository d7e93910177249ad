"""FedRep: first the head at home, then the body that is shared."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vitrail.config import schema
from vitrail.local.phases.phase import Fit
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.stage import Stage

Epochs = Annotated[int, Field(ge=1)]


class RepOptions(Options):
    """`head_epochs` for the head alone; the body then trains for `run.local_epochs`."""

    head_epochs: Epochs = 5


@METHODS.register("fedrep")
class FedRep(Method):
    """The head stays home, as in FedPer, but is trained first and alone, with the received body
    fixed; then the body is trained with that head fixed, and averaged."""

    summary = "FedAvg of the body; the head stays home and is trained first, alone"
    paper = "Collins et al. 2021, arXiv:2102.07078"
    Options = RepOptions
    table = {**Method.table, "head": "home"}

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Head, then body, in every turn."""
        del run
        head = Fit("head", ("head",), self.options.head_epochs)
        return (Stage(train=(head, Fit("body", ("backbone", "neck")))),)
