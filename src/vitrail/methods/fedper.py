"""FedPer: the head stays at home."""

from vitrail.methods.base.method import METHODS, Method


@METHODS.register("fedper")
class FedPer(Method):
    """FedAvg of the body; every site keeps its own head."""

    summary = "FedAvg of the body; the head stays home"
    paper = "Arivazhagan et al. 2019, arXiv:1912.00818"
    table = {**Method.table, "head": "home"}
