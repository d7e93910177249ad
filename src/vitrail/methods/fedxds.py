"""FedXDS: sites share the pixels that explain their images' classes, once, and train on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.errors import ConfigError
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.share import Chosen, choose
from vitrail.local.share_batches import SharedBatches, gathered
from vitrail.local.share_filters import EMBEDDINGS
from vitrail.local.terms import Terms
from vitrail.methods.fedxds_options import XdsOptions
from vitrail.methods.method import METHODS, About, Method
from vitrail.methods.server import Server
from vitrail.methods.stage import Stage
from vitrail.models.parts import PARTS
from vitrail.release.asset import Asset
from vitrail.release.distances import Distances
from vitrail.release.images import Protected, protect
from vitrail.release.message import ANY, KEEP, Field

IMAGES = "images"
WARM_UP, SHARE, TRAIN = "warm-up", "share", "train"


@dataclass(frozen=True)
class ShareImages:
    """Attribute the site's images once, mask them, protect them, and lay them out to be sent."""

    name: str = SHARE
    sends: bool = True

    def show(self, site: Site, ctx: Context) -> tuple[Chosen, Protected]:
        """What would be shared, before and after protection; for a preview, nothing is sent."""
        return shared_by(site, ctx.options, ctx.classes)

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """The model stays as it is."""
        _, found = self.show(site, ctx)
        site.out = {f"{IMAGES}/pixels": found.pixels, f"{IMAGES}/targets": found.targets}
        site.lines.append(found.line)
        return {"shared_images": float(len(found.targets))}


def shared_by(site: Site, options: XdsOptions, classes: int) -> tuple[Chosen, Protected]:
    """What a site would share under these options, before and after protection."""
    key = site.key.at(SHARE)
    chosen = choose(site, options.choice(), key)
    how = options.protect(site.name)
    distances = None
    if how.mode == "metric":
        coordinates = None
        if options.embedding is not None:
            coordinates = EMBEDDINGS[options.embedding](chosen.pixels)
        distances = Distances.of(chosen.pixels, chosen.labels, how.norm, coordinates)
    found = protect(chosen.pixels, chosen.labels, classes, how, key, distances)
    return chosen, found


@METHODS.register("fedxds")
class FedXDS(Method):
    """Warm up by FedAvg; share masked images once; then CE(own batch) + CE(shared batch)."""

    summary = "sites share the pixels that explain their images, once"
    paper = "FedXDS (explanation-guided data sharing; readings in docs/explanation/sharing.md)"
    Options = XdsOptions
    optimizer = OptimizerSettings(lr=0.01, momentum=0.9)

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm-up, one round of sharing by all sites in which no model moves, training."""
        warm = self.options.warmup
        if warm is None:
            warm = min(10, run.rounds // 3)
        elif warm > run.rounds - 2:
            raise ConfigError(
                f"{warm} rounds of warm-up and one of sharing leave none of {run.rounds} to train",
                where="method.warmup",
                hint="Raise run.rounds, or lower warmup.",
            )
        still: dict[str, str] = dict.fromkeys(PARTS, "frozen")
        share = Stage(SHARE, rounds=1, sites="all", train=(ShareImages(),), table=still)
        first = (Stage(WARM_UP, rounds=warm),) if warm else ()
        return (*first, share, Stage(TRAIN))

    def beside(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """The images and their labels go up in the round of sharing."""
        if stage != SHARE:
            return (), ()
        spans = [self.options.protect(name).span for name in (None, *self.options.budgets)]
        span = min(low for low, _ in spans), max(high for _, high in spans)
        labels = (0, about.classes - 1)
        return (), (
            Field(f"{IMAGES}/pixels", (ANY, *about.image), KEEP, span=span),
            Field(f"{IMAGES}/targets", (ANY,), KEEP, torch.int64, span=labels),
        )

    def limits(self, facts: Mapping[str, float], ctx: Context) -> dict[str, float]:
        """No site shares more images than it has; behind a formal mechanism it tells 1."""
        del ctx
        if facts["examples"] <= 1:
            return {}
        return {f"{IMAGES}/{name}": facts["examples"] for name in ("pixels", "targets")}

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """A batch of shared images beside each of the site's own, once there are any."""
        del down
        pixels, targets = gathered(site, IMAGES)
        if ctx.stage != TRAIN or not len(targets):
            return Terms()
        batches = SharedBatches(
            site, pixels, targets, ctx.batch_size, self.options.weight, self.options.statistics
        )
        return Terms(pull=(batches,))

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean; after sharing, all images in an order that does not tell their sites."""
        if ctx.stage != SHARE:
            return super().close(server, sums, ctx)
        sites = [sums.kept[site] for site in sorted(sums.kept)]
        pixels = torch.cat([kept[f"{IMAGES}/pixels"] for kept in sites])
        targets = torch.cat([kept[f"{IMAGES}/targets"] for kept in sites])
        order = torch.randperm(len(targets), generator=ctx.key.at("shuffle").torch())
        if len(targets):
            server.assets[IMAGES] = Asset.of({"pixels": pixels[order], "targets": targets[order]})
        if self.options.after == "restart":
            server.values.copy_(server.start)
        return {"shared_images": float(len(targets))}
