"""FedLC: the local loss knows how often a site has each class."""

from typing import Annotated

from pydantic import Field

from vitrail.config import schema
from vitrail.config.section import NonNegative
from vitrail.local.phases.fit_calibrated import CalibratedFit, Margin
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.stage import Stage


class CalibrationOptions(Options):
    """`margin` is how counts become a shift of the logits: `root` as FedLC has it, `log` as logit
    adjustment and balanced softmax have it. `strength` weighs it, 0 being FedAvg; `smoothing` is
    added to every count, so that a class a site lacks has a shift too: the smaller, the less that
    class is pushed away."""

    margin: Margin = "root"
    strength: NonNegative = 1.0
    smoothing: Annotated[float, Field(gt=0)] = 1e-8


@METHODS.register("fedlc")
class FedLC(Method):
    """FedAvg whose sites train with logits that are shifted by their own class counts.

    The counts stay at the site. Rare classes get a margin, and classes that a site lacks are hardly
    pushed away, which is what averaging suffers from where sites hold different classes.
    """

    summary = "FedAvg; the local loss is calibrated by the site's class counts"
    paper = "Zhang et al. 2022, arXiv:2209.00189"
    Options = CalibrationOptions

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """One stage that trains with the shift."""
        del run
        options = self.options
        fit = CalibratedFit(
            margin=options.margin, strength=options.strength, smoothing=options.smoothing
        )
        return (Stage(train=(fit,)),)
