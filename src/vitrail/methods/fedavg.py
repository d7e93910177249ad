"""FedAvg: the mean of everything."""

from vitrail.methods.base.method import METHODS, Method


@METHODS.register("fedavg")
class FedAvg(Method):
    """Every site trains, the server averages, BatchNorm statistics included."""

    summary = "the weighted mean of everything"
    paper = "McMahan et al. 2017, arXiv:1602.05629"
