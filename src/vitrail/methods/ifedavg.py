"""iFedAvg: each site has a scale and a shift of its own, which show how it differs."""

from vitrail.methods.base.method import METHODS, Method


@METHODS.register("ifedavg")
class IFedAvg(Method):
    """FedAvg of everything but a per-channel affine layer that stays at its site.

    The paper's layers stand at the input of tabular models; here they stand on the channels of
    the backbone's map. The figure `affine_shift` is how far a site's layer is from the identity.
    All layers move away from it in training, so that the largest one need not be that of the site
    whose images differ (with one of four sites inverted it was so for one seed of three).
    """

    summary = "FedAvg, with a scale and a shift per channel that stay home"
    paper = "Roschewitz et al. 2021, arXiv:2107.06580"
    model = "affine"
    table = {**Method.table, "neck": "home"}
