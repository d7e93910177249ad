"""FedDF: the server distills the sites' models into their mean, on public images."""

from __future__ import annotations

from vitrail.aggregate.sums import Sums
from vitrail.local.session import Context, Metrics
from vitrail.methods.base.distillation import (
    DistillOptions,
    average_logits,
    compute_site_logits,
    distill,
    draw_public_batches,
)
from vitrail.methods.base.method import METHODS, Method
from vitrail.methods.base.server import Server


@METHODS.register("feddf")
class FedDF(Method):
    """Start from the mean of the models; then KL(softmax(mean of logits) || model) on public
    images without labels. Every site of the round teaches as much as any other.
    """

    summary = "FedAvg, then the mean learns what all models say of public images"
    paper = "Lin et al. 2020, arXiv:2006.07242"
    Options = DistillOptions
    needs = "all"
    server_data = "public"

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean, distilled."""
        super().close(server, sums, ctx)
        rows, batches = draw_public_batches(server.required_trainer.rows, self.options, ctx.key)
        logits = average_logits(list(compute_site_logits(server, sums, rows).values()))
        return distill(server, rows, logits, batches, self.options)
