"""FedYogi: the server steps with Yogi, whose second moment shrinks slowly."""

from torch import Tensor

from vitrail.methods.base.method import METHODS
from vitrail.methods.base.server_optimizer import AdaptiveStep, DecayingOptions


@METHODS.register("fedyogi")
class FedYogi(AdaptiveStep):
    """v <- v - (1 - b2) d^2 sign(v - d^2)."""

    summary = "the server steps with Yogi"
    Options = DecayingOptions

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Moves by the new square, up or down."""
        return v - (1 - float(self.options.beta2)) * square * (v - square).sign()
