"""FedAdagrad: the server steps with Adagrad."""

from torch import Tensor

from vitrail.methods.base.method import METHODS
from vitrail.methods.base.server_optimizer import AdaptiveStep


@METHODS.register("fedadagrad")
class FedAdagrad(AdaptiveStep):
    """v <- v + d^2: steps get smaller where much has moved."""

    summary = "the server steps with Adagrad"

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """The sum of all squares."""
        return v + square
