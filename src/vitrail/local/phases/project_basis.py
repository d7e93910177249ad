"""TesNet's second stage: every basis vector becomes the direction of a training patch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from vitrail.errors import ConfigError
from vitrail.geometry import orthonormalize
from vitrail.local.evaluate import CHUNK, compute_features
from vitrail.local.phases.push import DISTANCE, PLACE, ROW
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.heads.part_head import require_head
from vitrail.models.heads.tesnet_head import TesHead


@dataclass(frozen=True)
class ProjectBasis:
    """Put each basis vector onto the patch of its class with the largest cosine (Wang et al. 2021,
    projection); a class without an image here keeps its vectors.

    Vectors that must stay orthonormal become the orthonormal frame of the patches' directions.
    Where each came from is kept at the site, so that explanations can show it.
    """

    name: str = "project"

    @torch.no_grad()
    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Search the site's own images."""
        del ctx
        lack = ConfigError("a projection needs basis vectors", where="method.model")
        head = require_head(site.model.network, TesHead, lack)
        rows = site.rows.train if site.rows.push is None else site.rows.push
        count = len(head.owner)
        row, place = torch.full((count,), -1, dtype=torch.int64), torch.zeros(count).long()
        best = torch.full((count,), -torch.inf)
        basis = head.basis().mT.reshape(count, -1).clone()  # [units, n]
        vectors = basis.clone()
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            z = F.normalize(compute_features(site.model.network, site.inputs, part), dim=1)
            z, labels = z.flatten(2), site.inputs.targets(part)
            for label in sorted(set(labels.tolist())):
                units = torch.nonzero(head.owner == label)[:, 0]
                patches = z[labels == label].transpose(0, 1).flatten(1)  # [n, images x places]
                cosine, at = (basis[units] @ patches).max(1)
                nearer = cosine > best[units]
                units, at = units[nearer], at[nearer]
                best[units] = cosine[nearer]
                vectors[units] = patches[:, at].mT
                of_class = torch.from_numpy(part[(labels == label).numpy()])
                row[units] = of_class[at // z.shape[2]]
                place[units] = at % z.shape[2]
        frames = vectors.view(len(head.weight), -1, vectors.shape[1]).mT
        if head.geometries:
            present = row.view(len(head.weight), -1)[:, 0] >= 0
            frames = torch.where(present[:, None, None], orthonormalize(frames), head.frames)
        head.frames.copy_(frames)
        grounded = row >= 0
        site.state[ROW], site.state[PLACE] = row, place
        site.state[DISTANCE] = (2 - 2 * best).clamp_min(0).where(grounded, -1.0)
        return {"grounded": float(grounded.double().mean())}
