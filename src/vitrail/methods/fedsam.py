"""FedSAM: sites look for flat minima."""

from collections.abc import Mapping

from torch import Tensor

from vitrail.config.schema import NonNegative
from vitrail.local.session import Context, Site
from vitrail.local.terms import Sam, Terms
from vitrail.methods.base.method import METHODS, Method, Options


class SamOptions(Options):
    """`rho` is how far the worst nearby point lies."""

    rho: NonNegative = 0.05


@METHODS.register("fedsam")
class FedSAM(Method):
    """Each step takes the gradient at w + rho g / |g|; it costs two passes."""

    summary = "FedAvg with sharpness-aware local steps"
    paper = "Qu et al. 2022, arXiv:2206.02618"
    Options = SamOptions

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """Claim how a batch becomes a gradient."""
        return Terms(gradient=Sam(self.options.rho))
