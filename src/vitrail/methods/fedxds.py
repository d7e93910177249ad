"""FedXDS: sites share the pixels that explain their images' classes, once, and train on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.errors import ConfigError, suggest_name
from vitrail.explain.attribution import Settings, attribute
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.phases.phase import DataAccess
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.sharing.choose_pixels import ChosenImages, choose
from vitrail.local.sharing.share_filters import embed_images, make_box_mask
from vitrail.methods.base.method import METHODS, About, RunSetup
from vitrail.methods.base.server import Server
from vitrail.methods.base.sharing_method import (
    IMAGES,
    SHARE,
    TRAIN,
    ImageSharingMethod,
    count_early_rounds,
)
from vitrail.methods.base.stage import Stage
from vitrail.methods.fedxds_options import XdsOptions
from vitrail.models.network import Network
from vitrail.release.accounting.metric_privacy import Distances
from vitrail.release.accounting.promise import check_delta
from vitrail.release.image_protection import ProtectedImages, clip_images, protect
from vitrail.release.message import Field

WARM_UP = "warm-up"


@dataclass(frozen=True)
class ShareImages:
    """Attribute the site's images once, mask them, protect them, and lay them out to be sent."""

    name: str = SHARE
    sends: bool = True
    sees: ClassVar[DataAccess] = "nothing"

    def preview_images(self, site: Site, ctx: Context) -> tuple[ChosenImages, ProtectedImages]:
        """What would be shared, before and after protection; for a preview, nothing is sent."""
        return preview_sharing(site, ctx.options, ctx.classes)

    def compute_unprotected(self, site: Site, ctx: Context) -> Tensor:
        """All images masked, and cut to the norm where they would be."""
        every = replace(ctx.options.choice(), fraction=1.0)
        pixels, how = (
            choose(site, every, site.noise.at(SHARE)).pixels,
            ctx.options.make_protection(None),
        )
        return clip_images(pixels, how.clip) if how.mode == "local-dp" else pixels

    def __call__(self, site: Site, ctx: Context) -> Metrics:
        """The model stays as it is."""
        _, protected = self.preview_images(site, ctx)
        site.out = {f"{IMAGES}/pixels": protected.pixels, f"{IMAGES}/targets": protected.targets}
        site.lines.append(protected.line)
        return {"shared_images": float(len(protected.targets))}


def preview_sharing(
    site: Site, options: XdsOptions, classes: int
) -> tuple[ChosenImages, ProtectedImages]:
    """What a site would share under these options, before and after protection."""
    key = site.noise.at(SHARE)
    chosen = choose(site, options.choice(), key)
    how = options.make_protection(site.name)
    distances = None
    if how.mode == "metric":
        coordinates = None
        if options.embedding is not None:
            coordinates = embed_images(options.embedding, chosen.pixels)
        distances = Distances.of(chosen.pixels, chosen.labels, how.norm, coordinates)
    protected = protect(chosen.pixels, chosen.labels, classes, how, key, distances)
    return chosen, protected


@METHODS.register("fedxds")
class FedXDS(ImageSharingMethod):
    """Warm up by FedAvg; share masked images once; then CE(own batch) + CE(shared batch)."""

    summary = "sites share the pixels that explain their images, once"
    paper = "FedXDS (explanation-guided data sharing; readings in docs/explanation/sharing.md)"
    Options = XdsOptions
    optimizer = OptimizerSettings(lr=0.01, momentum=0.9)

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm-up, one round of sharing by all sites in which no model moves, training."""
        warm = count_early_rounds(self.options.warmup, 10, run.rounds, "warmup")
        first = (Stage(WARM_UP, rounds=warm),) if warm else ()
        return (*first, self.share_stage(ShareImages()), Stage(TRAIN))

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """The images and their labels go up in the round of sharing."""
        if stage != SHARE:
            return (), ()
        every = [self.options.make_protection(name) for name in (None, *self.options.budgets)]
        if about.home and any(how.formal for how in every):
            raise ConfigError(
                f"layers that stay home learned from all of a site's images, and masks depend on "
                f"them: {self.options.protection!r} would promise what it does not keep",
                where="model.norm",
                hint='Use "average" or "group", or protection = "paper", which promises nothing.',
            )
        span = min(how.span[0] for how in every), max(how.span[1] for how in every)
        return (), self.image_fields(about, span, proved=all(how.formal for how in every))

    def check_run(self, setup: RunSetup) -> None:
        """Budgets and delta fit the sites, and images can be attributed and masked."""
        if setup.examples is not None:
            self._check_sites(setup.examples, setup.every_site)
        if setup.image is not None:
            self._check_network(setup.network, setup.image)

    def _check_sites(self, examples: Mapping[str, int], every_site: bool) -> None:
        """Budgets name sites that exist, and delta is small beside the number of images."""
        options = self.options
        for name in options.budgets if every_site else ():
            if name not in examples:
                raise ConfigError(
                    f"there is no site {name!r}",
                    where="method.budgets",
                    hint=suggest_name(name, examples),
                )
        if options.protection != "paper" and options.norm == "l2":
            check_delta(options.delta, examples, "method.delta")

    def _check_network(self, network: Network, image: tuple[int, int, int]) -> None:
        """Attribute one gray image and look into all boxes, rather than fail after the warm-up."""
        height, width, channels = image
        for box in (*self.options.boxes, *(region.box for region in self.options.regions)):
            make_box_mask(box, height, width)
        gray, first = torch.zeros(1, channels, height, width), torch.zeros(1, dtype=torch.int64)
        attribute(self.options.attribution, network, gray, first, Settings(steps=1, samples=1))

    def protection(self, site: str) -> str:
        """The mode of protection at a site, its noise, and whether a proof covers all of it."""
        how = self.options.make_protection(site)
        noise = f"{how.mode}, noise of deviation {how.deviation:.3g} on pixels in [0, 1]"
        return f"{noise}, {'a formal guarantee' if how.formal else 'no formal guarantee'}"

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean; after sharing, all images, and the model of the warm-up or the first one."""
        figures = super().close(server, sums, ctx)
        if ctx.stage == SHARE and self.options.after == "restart":
            server.values.copy_(server.start)
        return figures
