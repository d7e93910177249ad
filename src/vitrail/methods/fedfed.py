"""FedFed: sites share what an autoencoder leaves out of their images, once, and train on all."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as Key_
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.config.schema import Count, NonNegative, Positive
from vitrail.errors import ConfigError
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Metrics
from vitrail.methods.base.auxiliary_model import (
    build_module,
    get_module_tensors,
    make_module_fields,
)
from vitrail.methods.base.method import METHODS, About, Options
from vitrail.methods.base.server import Server
from vitrail.methods.base.sharing_method import SHARE, TRAIN, ImageSharingMethod, count_early_rounds
from vitrail.methods.base.stage import Stage
from vitrail.methods.fedfed_phases import DISTILL, VAE, Distill, ShareFeatures, make_vae
from vitrail.release.image_protection import Protection
from vitrail.release.message import Field


class FedFedOptions(Options):
    """Keys of `[method]`: the autoencoder, what is shared, and how it is used."""

    distill_rounds: Annotated[int, Key_(ge=1)] | None = None
    """Rounds that train the autoencoder; left out: 15, or a third of a shorter run."""
    sigmas: tuple[NonNegative, NonNegative] = (0.2, 0.25)
    """The noise's deviation in each of the two views, on pixels in [0, 1]."""
    vae_lr: Positive = 0.001
    """Adam's rate for the autoencoder."""
    vae_width: Count = 16
    """Channels of its first map."""
    latent: Count = 8
    """Channels of its latent map."""
    sensitive: NonNegative = 2.0
    """The weight of CE(model(x - VAE(x)), y)."""
    whole: NonNegative = 1.0
    """The weight of CE(model(x), y) in those rounds."""
    reconstruct: NonNegative = 5.0
    """The weight of the mean of (x - VAE(x))^2, which keeps small what is shared."""
    divergence: NonNegative = 0.005
    """The weight of the latent map's divergence from a standard normal."""
    weight: Positive = 1.0
    """The weight of the shared batch's loss."""
    statistics: bool = False
    """Whether BatchNorm's running statistics see what is shared."""


@METHODS.register("fedfed")
class FedFed(ImageSharingMethod):
    """A small VAE and the model are trained together and averaged; then each site shares
    x - VAE(x), what is left of an image, in two views with noise of its own; then FedAvg on
    CE(own batch) + CE(shared batch). The noise promises nothing.
    """

    summary = "sites share what an autoencoder leaves out of their images, with noise, once"
    paper = "Yang et al. 2023, arXiv:2310.05077"
    Options = FedFedOptions
    optimizer = OptimizerSettings(lr=0.01, momentum=0.9)
    views = 2

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """The autoencoder, one round of sharing by all sites, training."""
        asked = self.options.distill_rounds
        rounds = count_early_rounds(asked, 15, run.rounds, "distill_rounds", least=1)
        first = Stage(DISTILL, rounds=rounds, train=(Distill(),))
        return first, self.share_stage(ShareFeatures()), Stage(TRAIN)

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """The autoencoder while it is trained, and down once more; then what is shared goes up."""
        if stage == TRAIN:
            return (), ()
        if about.frozen:
            raise ConfigError(
                "FedFed learns what decides through the whole network, and some is frozen",
                where="model.frozen",
                hint="Set it to false, or choose another method.",
            )
        vae = make_module_fields(make_vae(self.options, about.image[2]), VAE)
        if stage == DISTILL:
            return vae, vae
        low, high = Protection(sigma=max(self.options.sigmas)).span
        return vae, self.image_fields(about, (low - 1, high))

    def protection(self, site: str) -> str:
        """The noise of the two views."""
        one, two = self.options.sigmas
        noise = f"what an autoencoder leaves out, noise of deviation {one:g} and {two:g}"
        return f"{noise} on pixels in [0, 1], {super().protection(site)}"

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """The model, and the autoencoder as long as sites need it."""
        message = super().open(server, ctx)
        if ctx.stage == TRAIN:
            return message
        if not server.state:
            key = ctx.key.at(VAE)
            fresh = build_module(lambda: make_vae(self.options, ctx.channels), key)
            server.state |= get_module_tensors(fresh, VAE)
        return {**message, **server.state}

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean, of the autoencoder too; after sharing, all that was shared."""
        figures = super().close(server, sums, ctx)
        if ctx.stage == DISTILL:
            server.state |= {n: t for n, t in sums.tensors.items() if n.startswith(f"{VAE}/")}
        if ctx.stage == SHARE:
            server.state.clear()  # nobody needs the autoencoder any more
        return figures
