"""AGP: noise everywhere but on the channels that matter most where a block ends."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitrail.config.schema import Positive
from vitrail.local.session import Context, Site
from vitrail.release.defenses.additive import Additive, check_touches
from vitrail.release.defenses.channels import zeta
from vitrail.release.defenses.defense import DEFENSES
from vitrail.release.defenses.guidance import Target, compute_importance, draw_guidance_rows
from vitrail.release.defenses.noise_options import Noise
from vitrail.release.setting import MODEL, Setting, list_convs
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
        check_touches(self, setting, why if setting.leaves else "")
        super().check(setting)

    def noise(self, update: Update, site: Site, ctx: Context) -> dict[str, Tensor]:
        """Gaussian noise of the scale zeta on the chosen channels, zero elsewhere."""
        del ctx
        options = self.options
        convs = [c for c in list_convs(site.model.network) if MODEL + c.name in update.tensors]
        rows = draw_guidance_rows(site, site.key.at("release", "guidance"))
        # blocks are the backbone's; the 1x1 layers of a neck are no blocks
        ends = [c.name for c in convs if c.last and c.name.startswith("backbone.")]
        rank = compute_importance(site, ends, rows, options.guidance)
        scale = zeta(options, site.name, self.images(site))
        source = self.key(site).at("noise").stream()
        drawn = {}
        for conv in convs:
            noise = scale * source.normal(conv.shape)
            if conv.name in rank:
                count = conv.shape[0] - max(1, int(options.share * conv.shape[0]))
                least = options.select == "least"
                spared = torch.argsort(rank[conv.name], descending=least, stable=True)[:count]
                noise[spared] = 0.0
            drawn[MODEL + conv.name] = noise
        return drawn
