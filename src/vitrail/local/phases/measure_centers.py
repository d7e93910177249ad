"""The phase in which a site measures the mean features of its classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitrail.local.evaluate import compute_features
from vitrail.local.session import Context, Metrics, Site


@dataclass(frozen=True)
class Centers:
    """Put the site's own class means, and the share of its images in each, where they travel."""

    name: str = "centers"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """A class the site lacks has a center of zeros and a share of 0."""
        rows, network = site.rows.train, site.model.network
        z, labels = compute_features(network, site.inputs, rows), site.inputs.targets(rows)
        count = torch.bincount(labels, minlength=ctx.classes).to(z)
        total = z.new_zeros(ctx.classes, z.shape[1]).index_add_(0, labels, z)
        centers = total / count.clamp(min=1)[:, None]
        share = count / max(1, len(rows))
        site.model.write({"head.centers": centers, "head.seen": share})
        return {}
