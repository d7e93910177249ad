"""FedGraSP: sites agree on a subspace for each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from vitrail.aggregate.subspace_rules import AGREEMENT, CLASS_COUNTS, DISTANCE
from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.config.added_keys import added
from vitrail.errors import ConfigError
from vitrail.local.label_histogram import count_labels, tell_private_histogram
from vitrail.local.phases.class_spans import Spans
from vitrail.local.phases.subspace_distance import Distance, keep_sent
from vitrail.local.phases.tune_head import Personalize
from vitrail.local.session import Context, Metrics, Site
from vitrail.methods.base.method import METHODS, About, Method, Options, Roster
from vitrail.methods.base.prototype_recipe import JOINT
from vitrail.methods.base.server import Server
from vitrail.methods.base.stage import Stage
from vitrail.methods.base.subspace_recipe import SUBSPACES
from vitrail.release import message

_RULES = {
    "exact": "grassmann",
    "thin": "grassmann-thin",
    "iterative": "grassmann-iterative",
    "karcher": "karcher",
    "median": "grassmann-median",
    "trimmed": "grassmann-trimmed",
    "tangent": "grassmann-tangent",
}


class GraspOptions(Options):
    """`weights` says how much a site counts; `class-counts` counts a site for each class by its
    images of that class and discloses the label histogram of every site to the server, unless
    `counts_epsilon` is the budget that it leaves under, once and with noise.

    `consensus` is the mean of subspaces: the closed form from the sum of projectors (`exact`) or
    from the frames themselves (`thin`, for patches of many channels; it must see every site's),
    the paper's Algorithm 1, the geodesic mean; what stands hostile sites, the median or the mean
    without the farthest, where `class-counts` lets only sites vote for a class that hold it; or
    `tangent`, one step along the mean of the sites' steps, which takes the least noise. At the end
    each site tunes G for `personal_epochs` at the rate `personal_lr`; 0 epochs leave it the
    identity. `start` is where subspaces begin: `random`, or `patches`, one round more in which
    sites agree on what their images' patches span.
    """

    start: Literal["random", "patches"] = "random"
    weights: Literal["uniform", "examples", "class-counts"] = "uniform"
    counts_epsilon: Annotated[float, Field(gt=0)] | None = added(None)
    consensus: Literal["exact", "thin", "iterative", "karcher", "median", "trimmed", "tangent"] = (
        "exact"
    )
    personal_epochs: Annotated[int, Field(ge=0)] = 10
    personal_lr: Annotated[float, Field(gt=0)] = 1e-3

    @model_validator(mode="after")
    def _check_countable(self) -> GraspOptions:
        counting = ("exact", "median", "trimmed")
        if self.weights == "class-counts" and self.consensus not in counting:
            raise ValueError(
                'weights = "class-counts" needs consensus = "exact", "median" or "trimmed"'
            )
        if self.start == "patches" and self.consensus == "tangent":
            raise ValueError(
                'steps away from random subspaces have no mean: start = "patches" needs another '
                'consensus than "tangent"'
            )
        if self.counts_epsilon is not None and self.weights != "class-counts":
            raise ValueError('counts_epsilon needs weights = "class-counts": no counts leave else')
        return self


@METHODS.register("fedgrasp")
class FedGraSP(Method):
    """The body is averaged, subspaces by their mean on the Grassmann manifold, G is tuned at home.

    What leaves a site for a class is a frame that depends on its subspace alone.
    """

    summary = "a subspace for each class, averaged on the Grassmann manifold"
    paper = "FedGraSP: federated learning via subspace representations, 2026 (ICML workshop)"
    Options = GraspOptions
    model = "fedgrasp"
    optimizer = SUBSPACES
    table = {**Method.table, "prototypes": "grassmann", "head": "frozen"}
    reference = True

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """One stage; at its end a comparison with what was sent, and a head of the site's own."""
        options = self.options
        rule = self._rule
        end: tuple[Distance | Personalize, ...] = (Distance(),)
        if options.personal_epochs:
            end = (*end, Personalize(options.personal_epochs, options.personal_lr))
        table = {**self.table, "prototypes": rule}
        train = Stage(train=(JOINT,), finish=end, table=table)
        if options.start == "random":
            return (train,)
        if run.rounds < 2:
            raise ConfigError(
                "one round is spent on where subspaces begin, and none is left to train",
                where="method.start",
                hint='Raise run.rounds, or take start = "random".',
            )
        still = {"backbone": "frozen", "neck": "frozen", "prototypes": rule, "head": "frozen"}
        return (Stage("start", rounds=1, sites="all", train=(Spans(),), table=still), train)

    @property
    def _rule(self) -> str:
        if self._by_class and self.options.consensus == "exact":
            return "grassmann-classes"
        return _RULES[self.options.consensus]

    @property
    def _by_class(self) -> bool:
        return bool(self.options.weights == "class-counts")

    def weights(self, roster: Roster, sites: Sequence[str]) -> dict[str, float]:
        """All the same, or by images; with class counts that is for the body."""
        if self.options.weights == "uniform":
            return dict.fromkeys(sites, 1.0)
        return {site: roster[site]["examples"] for site in sites}

    def messages(
        self, stage: str, about: About
    ) -> tuple[tuple[message.Field, ...], tuple[message.Field, ...]]:
        """The label histogram goes up, if that is what sites are weighed by."""
        del stage
        if not self._by_class:
            return (), ()
        return (), (message.Field(CLASS_COUNTS, (about.classes,), self._rule),)

    def end(self, site: Site, ctx: Context) -> dict[str, Tensor]:
        """Remember what is sent; with class counts, add them."""
        keep_sent(site)
        if not self._by_class:
            return {}
        epsilon = self.options.counts_epsilon
        exact = epsilon is None
        counts = count_labels(site, ctx) if exact else tell_private_histogram(site, ctx, epsilon)
        return {CLASS_COUNTS: counts.to(torch.float32)}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """Keep the agreement by class in the server's state, beside the model.

        Distances have a row for every site of the roster, by name: its last one, NaN before it.
        """
        sites = sorted(server.roster)
        for name, tensor in sums.tensors.items():
            if name.startswith(AGREEMENT) and name.endswith(f"/{DISTANCE}"):
                empty = torch.full((len(sites), *tensor.shape[1:]), torch.nan)
                rows = server.state.get(name, empty).clone()
                rows[[sites.index(site) for site in sums.accepted]] = tensor
                server.state[name] = rows
            elif name.startswith(AGREEMENT):
                server.state[name] = tensor
        return super().close(server, sums, ctx)
