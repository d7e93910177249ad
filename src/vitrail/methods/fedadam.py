"""FedAdam: the server steps with Adam."""

from torch import Tensor

from vitrail.methods.base.method import METHODS
from vitrail.methods.base.server_optimizer import AdaptiveStep, DecayingOptions


@METHODS.register("fedadam")
class FedAdam(AdaptiveStep):
    """v <- b2 v + (1 - b2) d^2. Without bias correction, as in the paper."""

    summary = "the server steps with Adam"
    Options = DecayingOptions

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """A running mean of squares."""
        beta = float(self.options.beta2)
        return beta * v + (1 - beta) * square
