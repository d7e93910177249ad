"""The phase in which a class's subspace becomes the one that its patches span best."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F

from vitrail.geometry.mean import leading
from vitrail.local.evaluate import seen
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
            mine = rows[site.inputs.labels[rows] == label]
            if len(mine):
                z = F.normalize(seen(model.network, site.inputs, mine).double(), dim=1)
                patches = z.transpose(0, 1).flatten(1)
                frames[label] = leading(patches @ patches.mT, frames.shape[-1]).to(frames)
        model.write({"head.frames": frames})
        return {}
