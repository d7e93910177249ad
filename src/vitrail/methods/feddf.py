"""FedDF: the server distills the sites' models into their mean, on public images."""

from __future__ import annotations

from vitrail.aggregate.sums import Sums
from vitrail.local.session import Context, Metrics
from vitrail.methods.distill import DistillOptions, distill, drawn, mean_of, opinions
from vitrail.methods.method import METHODS, Method
from vitrail.methods.server import Server


@METHODS.register("feddf")
class FedDF(Method):
    """Start from the mean of the models; then KL(softmax(mean of logits) || model) on public
    images without labels. Every site of the round teaches as much as any other.
    """

    summary = "FedAvg, then the mean learns what all models say of public images"
    paper = "Lin et al. 2020, arXiv:2006.07242"
    Options = DistillOptions
    needs = "all"
    at_server = True
    public = True

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean, distilled."""
        super().close(server, sums, ctx)
        rows, batches = drawn(server.workplace.rows, self.options, ctx.key)
        logits = mean_of(list(opinions(server, sums, rows).values()))
        return distill(server, rows, logits, batches, self.options)
