"""FedProx: sites are pulled back to the model they received."""

from collections.abc import Mapping

from torch import Tensor

from vitrail.config.schema import NonNegative
from vitrail.local.session import Context, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.pulls import make_proximal_pull


class ProxOptions(Options):
    """`mu` is the strength of the pull."""

    mu: NonNegative = 0.01


@METHODS.register("fedprox")
class FedProx(Method):
    """The local loss has (mu/2) |w - w_g|^2 added to it."""

    summary = "FedAvg with a pull (mu/2)|w - w_g|^2 to the received model"
    paper = "Li et al. 2020, arXiv:1812.06127"
    Options = ProxOptions

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """Add mu (w - w_g) to every gradient of what travels."""
        return Terms(pull=(make_proximal_pull(site, self.options.mu),))
