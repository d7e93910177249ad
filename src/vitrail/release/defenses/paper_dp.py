"""The papers' "differential privacy": clip each step's mean gradient, add noise once at the end.

It has no guarantee. The sensitivity of a clipped mean is twice the clip, whatever the batch, not
the clip over the number of images; and nothing accounts for the rounds. It exists to be compared
with, under the name of what it is.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from vitrail.config.schema import Positive
from vitrail.local.session import Context, Site
from vitrail.local.terms import Terms
from vitrail.release.defenses.additive import Additive
from vitrail.release.defenses.channels import zeta
from vitrail.release.defenses.defense import DEFENSES
from vitrail.release.defenses.noise_options import Noise
from vitrail.release.setting import MODEL, Setting
from vitrail.release.update import Update


class PaperDpOptions(Noise):
    """`[release.paper-dp]`; its epsilon is a dial, not a guarantee."""

    epsilon: Positive = 5.0
    """What the noise is computed from; no guarantee."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """What the noise is computed from; no guarantee."""
    clip: Positive = 1.0
    """The largest norm of a step's mean gradient."""


@DEFENSES.register("paper-dp")
class PaperDp(Additive):
    """Noise of deviation sqrt(2 ln(1.25/delta)) (2 clip / n) / epsilon on every weight, once."""

    Options = PaperDpOptions

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """Every weight."""
        weights = {f"{MODEL}{s.name}" for s in setting.layout.specs if s.trainable}
        return tuple(name for name in setting.leaves if name in weights)

    def train(self, site: Site, ctx: Context) -> Terms:
        """Claim the clipping of each step's gradient."""
        del site, ctx
        return Terms(clip=self.options.clip)

    def noise(self, update: Update, site: Site, ctx: Context) -> dict[str, Tensor]:
        """White noise on every weight."""
        del ctx
        deviation, source = (
            zeta(self.options, site.name, self.images(site)),
            self.key(site).stream(),
        )
        weights = {f"{MODEL}{s.name}" for s in site.model.layout.specs if s.trainable}
        return {
            name: deviation * source.normal(tensor.shape)
            for name, tensor in update.tensors.items()
            if name in weights
        }
