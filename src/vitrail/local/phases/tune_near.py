"""A personal model near the shared one: classes are tuned at home, with a pull back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.geometry.retraction import logarithm
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import Fit
from vitrail.local.phases.tune_head import unfreeze_head
from vitrail.local.session import Context, Metrics, Site
from vitrail.models.flat import FlatModel
from vitrail.models.parts import Part


@dataclass(frozen=True)
class TuneNear:
    """Tune what stands for the classes on the site's own images, with (w / 2) d^2 to the received
    model beside the loss; nothing of it is released.

    Subspaces where there are some, d the geodesic distance on the Grassmann manifold; else the
    head, d the Euclidean one (Li et al. 2021, Ditto, arXiv:2012.04221). The rate is `share` of the
    one that the run trains with, and each step goes `pull` of the way back, w = pull / rate, so
    that both mean the same in every geometry.
    """

    epochs: int = 10
    share: float = 0.3
    pull: float = 0.01
    name: str = "near"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """The run's own optimizer, slower, on one part."""
        part = find_class_part(site.model)
        settings, before = scale_rates(ctx.optimizer, self.share), site.terms
        pull = make_pull(site.model, part, self.pull / settings.of(part)[0])
        near_ctx = replace(ctx, optimizer=settings)
        site.terms = replace(before, pull=(*before.pull, pull))
        try:
            with unfreeze_head(site.model):
                return Fit(self.name, (part,), self.epochs)(site, near_ctx)
        finally:
            site.terms = before


def find_class_part(model: FlatModel) -> Part:
    """The part that holds one thing for each class: prototypes, or the head without any."""
    parts = {spec.part for spec in model.layout.specs if spec.trainable}
    return "prototypes" if "prototypes" in parts else "head"


def scale_rates(settings: OptimizerSettings, share: float) -> OptimizerSettings:
    """The same optimizer with every rate multiplied."""
    parts = {part: (share * lr, decay) for part, (lr, decay) in settings.parts.items()}
    return replace(settings, lr=share * settings.lr, parts=parts)


def make_pull(model: FlatModel, part: Part, weight: float) -> Callable[[FlatModel], None]:
    """A pull of a part's tensors to where they are now: the gradient of (weight / 2) d^2, which on
    the Grassmann manifold is minus the logarithm of the way back."""
    start: dict[str, Tensor] = {
        spec.name: model.named[spec.name].detach().clone()
        for spec in model.layout.specs
        if spec.part == part and spec.trainable
    }

    @torch.no_grad()
    def pull(moving: FlatModel) -> None:
        for spec, at in zip(moving.layout.specs, moving.layout.offsets, strict=True):
            if spec.name not in start:
                continue
            x, gradient = moving.named[spec.name], moving.grads[at : at + spec.size]
            if spec.geometry == "grassmann":
                back = -logarithm(x, start[spec.name])
            else:
                back = x - start[spec.name]
            gradient.add_(back.reshape(-1), alpha=weight)

    return pull
