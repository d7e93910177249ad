"""Ditto: beside the global model each site trains one of its own, pulled to the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from vitrail.config import schema
from vitrail.config.schema import NonNegative
from vitrail.local.phases.phase import DataAccess, Fit
from vitrail.local.session import Context, Metrics, Result, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.pulls import make_proximal_pull
from vitrail.methods.base.stage import Stage

PERSONAL = "personal"  # the site's own model in its state, one flat vector
Epochs = Annotated[int, Field(ge=1)]


class DittoOptions(Options):
    """`lam` is how strongly a site's own model is pulled to the global one (0: it trains alone);
    `personal_epochs` are its epochs a turn, those of the run if left out."""

    lam: NonNegative = 0.1
    personal_epochs: Epochs | None = None


@dataclass(frozen=True)
class TakePersonal:
    """The site's own model in place of what was received: that is what it is judged by."""

    name: str = "take personal"
    sees: ClassVar[DataAccess] = "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Its own model starts as the first one that it receives."""
        del ctx
        if PERSONAL in site.state:
            site.model.values.copy_(site.state[PERSONAL])
        return {}


@dataclass(frozen=True)
class FitPersonal:
    """Train the site's own model, then put back what was received. Nothing of it leaves, so no
    clipping and no noise of a defense is spent on it."""

    lam: float
    epochs: int | None = None
    name: str = PERSONAL
    sees: ClassVar[DataAccess] = "nothing"

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """Minimize F_k(v) + (lam/2) |v - w|^2, w being what was received."""
        TakePersonal()(site, ctx)
        terms, result = site.terms, site.result
        site.terms, site.result = Terms(pull=(make_proximal_pull(site, self.lam),)), Result()
        figures = Fit(self.name, epochs=self.epochs)(site, ctx)
        site.state[PERSONAL] = site.model.values.cpu().clone()
        site.aside += site.result.images
        site.terms, site.result = terms, result
        site.model.values.copy_(site.received)
        return {"personal_loss": figures["train_loss"]}


@METHODS.register("ditto")
class Ditto(Method):
    """FedAvg for the global model; each site keeps one of its own with (lam/2) |v - w|^2 added to
    its loss. Figures of sites are those of their own models, figures of the server the global's.
    """

    summary = "FedAvg, and a model of its own at each site that is pulled to the global one"
    paper = "Li et al. 2021, arXiv:2012.04221"
    Options = DittoOptions

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """The site's own model, then the shared one."""
        del run
        personal = FitPersonal(self.options.lam, self.options.personal_epochs)
        return (Stage(arrive=(TakePersonal(),), train=(personal, Fit())),)
