"""Remedies against a bias as phases of a turn: mask, penalize, mix, and a new last layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import Fit
from vitrail.local.phases.push import get_prototype_head
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Batch, Terms
from vitrail.models.heads.head import Outputs

OWN_VECTORS = "debias/vectors"


class Remedy:
    """What is done about a bias; a site that trains alone has no use for it."""


@dataclass(frozen=True)
class Mask(Remedy):
    """Take prototypes out of use."""

    units: tuple[int, ...]
    name: str = "mask"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Change the mask in place; shapes stay as they are."""
        del ctx
        head = get_prototype_head(site.model.network)
        head.mask[list(self.units)] = 0.0
        return {"pruned": float((~head.alive()).double().mean())}


@dataclass(frozen=True)
class Penalize(Remedy):
    """From here on in this turn, similarity to some prototypes costs: strength times its mean."""

    units: tuple[int, ...]
    strength: float
    name: str = "penalize"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Add the term to what the site trains with."""
        del ctx
        units, head = list(self.units), get_prototype_head(site.model.network)

        def term(outputs: Outputs, batch: Batch) -> Tensor:
            del batch
            return self.strength * head.compute_similarity(outputs["distances"][:, units]).mean()

        site.terms = site.terms.combine(Terms(loss=(term,)))
        return {}


@dataclass(frozen=True)
class Retrain(Remedy):
    """Train the last layer alone, at a rate of its own."""

    epochs: int
    lr: float
    name: str = "retrain"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Adam on the head for some epochs."""
        head_ctx = replace(ctx, optimizer=OptimizerSettings("adam", self.lr))
        return Fit(self.name, ("head",), self.epochs)(site, head_ctx)


@dataclass(frozen=True)
class Remember(Remedy):
    """Keep the prototypes as the site trained them, at home, to be mixed with what comes back."""

    name: str = "remember"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Copy them into the site's state."""
        del ctx
        site.state[OWN_VECTORS] = (
            get_prototype_head(site.model.network).vectors.detach().cpu().clone()
        )
        return {}


@dataclass(frozen=True)
class Mix(Remedy):
    """Prototypes of some classes move from the shared ones toward the site's own, by distance.

    A prototype that came back as near as those of other classes do stays shared; the farther
    it is, the more it is the site's own: a share of 1 - m / d, where d is its squared distance
    and m the median over the other classes. A suspected site keeps what is shared.
    """

    labels: tuple[int, ...]
    suspected: tuple[str, ...]
    name: str = "mix"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Change the prototypes in place; a site that never sent any has none to mix."""
        del ctx
        trained = site.state.get(OWN_VECTORS)
        if trained is None or site.name in self.suspected:
            return {}
        head = get_prototype_head(site.model.network)
        vectors = head.vectors.data
        chosen = torch.isin(head.owner, torch.tensor(self.labels, device=vectors.device))
        vectors.copy_(
            torch.where(chosen[:, None], mix_vectors(vectors, trained.to(vectors), chosen), vectors)
        )
        return {}


def mix_vectors(shared: Tensor, trained: Tensor, chosen: Tensor) -> Tensor:
    """Shared vectors [m, D] moved toward the own ones; `chosen` are those in question."""
    distance = (trained - shared).square().sum(1)
    usual = distance[~chosen].median() if bool((~chosen).any()) else distance.median()
    share = (1 - usual / distance.clamp_min(1e-12)).clamp(0, 1)
    return shared + share[:, None] * (trained - shared)
