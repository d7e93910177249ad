"""The phase in which a class's subspace becomes the one that its patches span best."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F

from vitrail.geometry.subspace_mean import leading_eigenvectors
from vitrail.local.evaluate import compute_features
from vitrail.local.session import Context, Metrics, Site


@dataclass(frozen=True)
class Spans:
    """Frames from the site's images: the leading singular vectors of a class's unit patches.

    A class without a training image at the site keeps the frame that was received.
    """

    name: str = "spans"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Nothing but the frames changes."""
        rows, model = site.rows.train, site.model
        frames = model.named["head.frames"].clone()
        for label in range(ctx.classes):
            class_rows = rows[site.inputs.labels[rows] == label]
            if len(class_rows):
                z = F.normalize(
                    compute_features(model.network, site.inputs, class_rows).double(), dim=1
                )
                patches = z.transpose(0, 1).flatten(1)
                frames[label] = leading_eigenvectors(patches @ patches.mT, frames.shape[-1]).to(
                    frames
                )
        model.write({"head.frames": frames})
        return {}
