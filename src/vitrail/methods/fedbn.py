"""FedBN: normalization layers stay at home."""

from vitrail.methods.base.method import METHODS, Method


@METHODS.register("fedbn")
class FedBN(Method):
    """FedAvg of everything but normalization layers, found by their type."""

    summary = "FedAvg; normalization layers stay home"
    paper = "Li et al. 2021, arXiv:2102.07623"
    table = {**Method.table, "norm": "home", "statistic": "home"}
