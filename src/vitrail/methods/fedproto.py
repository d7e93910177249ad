"""FedProto: sites share the mean features of their classes and keep their models."""

from __future__ import annotations

from vitrail.config import schema
from vitrail.local.phases.measure_centers import Centers
from vitrail.local.phases.phase import Fit
from vitrail.methods.base.method import METHODS, Method
from vitrail.methods.base.stage import Stage


@METHODS.register("fedproto")
class FedProto(Method):
    """Every model stays home; class centers are averaged, and features are drawn to them.

    A center and the share of images behind it leave a site: its label histogram is disclosed.
    """

    summary = "models stay home; the mean features of each class are shared"
    paper = "Tan et al. 2022, arXiv:2105.00243"
    model = "centers"
    table = {"backbone": "home", "neck": "home", "head": "home", "prototypes": "centers"}

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Train, then measure what is shared."""
        del run
        return (Stage(train=(Fit(), Centers())),)
