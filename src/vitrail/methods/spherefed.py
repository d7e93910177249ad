"""SphereFed: a classifier that nobody trains, so that all sites learn towards the same targets."""

from vitrail.methods.base.method import METHODS, Method


@METHODS.register("spherefed")
class SphereFed(Method):
    """FedAvg of the body under fixed orthonormal class directions, squared error."""

    summary = "FedAvg of the body; the classifier is fixed and orthonormal"
    paper = "Dong et al. 2022, arXiv:2207.09413"
    model = "sphere"
