"""A personal head that differs from the shared one in a few directions only."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import Fit
from vitrail.local.phases.tune_head import unfreeze_head
from vitrail.local.session import Context, Metrics, Site

_WEIGHT = "head.weight"


@dataclass(frozen=True)
class TuneLowRank:
    """Tune the head on the site's own images, its change cut to `rank` after every epoch: the
    nearest matrix of that rank. Nothing of it is released.

    For FedGraSP that is G = I + A B, for a linear head W + A B.
    """

    rank: int = 2
    epochs: int = 10
    lr: float = 1e-3
    name: str = "low-rank"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Adam on the head, begun anew each epoch, and the cut."""
        weight = site.model.named[_WEIGHT]
        start = weight.detach().clone()
        head_ctx = replace(ctx, optimizer=OptimizerSettings("adam", self.lr))
        metrics: Metrics = {}
        with unfreeze_head(site.model):
            for epoch in range(self.epochs):
                metrics = Fit(f"{self.name} {epoch}", ("head",), 1)(site, head_ctx)
                with torch.no_grad():
                    weight.copy_(start + cut_to_rank(weight - start, self.rank))
        return metrics


def cut_to_rank(matrix: Tensor, rank: int) -> Tensor:
    """The nearest matrix of a rank (Eckart and Young 1936)."""
    left, sizes, right = torch.linalg.svd(matrix.detach(), full_matrices=False)
    cut: Tensor = (left[:, :rank] * sizes[:rank]) @ right[:rank]
    return cut
