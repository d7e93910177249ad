"""Training whose loss knows how often a site has each class, so that it need not learn that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vitrail.local.label_histogram import count_labels
from vitrail.local.phases.phase import DataAccess, Fit, Forward
from vitrail.local.session import Context, Site
from vitrail.local.terms import Batch
from vitrail.models.heads.head import Outputs

Margin = Literal["root", "log"]


def compute_label_shift(
    counts: Tensor, margin: Margin, strength: float, smoothing: float
) -> Tensor:
    """What is added to the logits in the loss, [classes], from the counts n_c of a site's classes.

    `root`: -strength (n_c + a)^(-1/4), the calibration of FedLC (Zhang et al. 2022,
    arXiv:2209.00189, eq. 5). `log`: strength log((n_c + a) / (n + a C)), logit adjustment (Menon
    et al. 2021, arXiv:2007.07314), at strength 1 balanced softmax (Ren et al. 2020,
    arXiv:2007.10740).
    """
    lifted = counts.to(torch.float64) + smoothing
    shift = -(lifted**-0.25) if margin == "root" else (lifted / lifted.sum()).log()
    return (strength * shift).to(torch.float32)


@dataclass(frozen=True)
class CalibratedFit(Fit):
    """Fit with shifted logits in the loss; the model that leaves is used without the shift.

    One image moves the shift and by it the gradient of every other one: clipping single examples
    bounds nothing here.
    """

    name: str = "fit"
    margin: Margin = "root"
    strength: float = 1.0
    smoothing: float = 1e-8
    sees: ClassVar[DataAccess] = "data"

    def feed(self, site: Site, ctx: Context) -> tuple[Forward, Iterator[Batch]]:
        """The batches of `Fit`, through a forward that ends in shifted logits."""
        forward, batches = super().feed(site, ctx)
        counts = count_labels(site, ctx)
        shift = compute_label_shift(counts, self.margin, self.strength, self.smoothing)
        shift = shift.to(site.model.values.device)

        def shifted(x: Tensor) -> Outputs:
            outputs = forward(x)
            return {**outputs, "logits": outputs["logits"] + shift}

        return shifted, batches
