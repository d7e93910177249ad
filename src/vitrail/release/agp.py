"""AGP: noise everywhere but on the channels that matter most where a block ends."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitrail.config.schema import Positive
from vitrail.local.session import Context, Site
from vitrail.release.additive import Additive, must_touch
from vitrail.release.channels import zeta
from vitrail.release.defense import DEFENSES
from vitrail.release.guidance import Target, guidance_rows, importance
from vitrail.release.options import Noise
from vitrail.release.setting import MODEL, Setting, convs_of
from vitrail.release.update import Update


class AGPOptions(Noise):
    """Keys of `[release.agp]`."""

    epsilon: Positive = 5.0
    """In the scale of the noise only; there is no guarantee behind it."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """In the scale of the noise only."""
    clip: Positive = 1.0
    """Stands for the largest gradient in the scale of the noise, 2 clip / images of the site."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.75
    """The share of channels that get noise in the last convolution of each block."""
    select: Literal["least", "most"] = "least"
    """Which channels those are, by their importance."""
    guidance: Target = "logit"
    """What the gradients that rank channels are of: the true class's logit, or the loss."""


@DEFENSES.register("agp")
class AGP(Additive):
    """Gaussian noise on all channels of convolutions, but in the last one of each block only on
    the 75 % that matter least: the opposite choice to TIP. Without a guarantee."""

    uses_data = True
    Options = AGPOptions

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """All kernels that leave."""
        return tuple(MODEL + c.name for c in setting.convs if MODEL + c.name in setting.leaves)

    def check(self, setting: Setting) -> None:
        """It needs convolutions that leave."""
        why = "no convolution is trained and shared" if setting.convs else "there is no convolution"
        must_touch(self, setting, why if setting.leaves else "")
        super().check(setting)

    def noise(self, update: Update, site: Site, ctx: Context) -> dict[str, Tensor]:
        """Gaussian noise of the scale zeta on the chosen channels, zero elsewhere."""
        del ctx
        options = self.options
        convs = [c for c in convs_of(site.model.network) if MODEL + c.name in update.tensors]
        rows = guidance_rows(site, site.key.at("release", "guidance"))
        # blocks are the backbone's; the 1x1 layers of a neck are no blocks
        ends = [c.name for c in convs if c.last and c.name.startswith("backbone.")]
        rank = importance(site, ends, rows, options.guidance)
        scale = zeta(options, site.name, self.images(site))
        source = self.key(site).at("noise").stream()
        found = {}
        for conv in convs:
            noise = scale * source.normal(conv.shape)
            if conv.name in rank:
                count = conv.shape[0] - max(1, int(options.share * conv.shape[0]))
                least = options.select == "least"
                spared = torch.argsort(rank[conv.name], descending=least, stable=True)[:count]
                noise[spared] = 0.0
            found[MODEL + conv.name] = noise
        return found
