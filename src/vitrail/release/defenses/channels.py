"""Noise on chosen channels of the convolutions: TIP and its controls differ in two words."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from vitrail.config.schema import Positive
from vitrail.local.session import Context, Site
from vitrail.release.defenses.additive import Additive, check_touches
from vitrail.release.defenses.defense import DEFENSES
from vitrail.release.defenses.guidance import Target, compute_importance, draw_guidance_rows
from vitrail.release.defenses.noise_options import Noise
from vitrail.release.defenses.spectrum import Radius, filter_noise, make_high_pass_mask
from vitrail.release.setting import MODEL, Conv, Setting, list_convs
from vitrail.release.update import Update

Pick = Literal["most", "least", "random", "all"]


class ChannelOptions(Noise):
    """The keys of TIP and of its controls, which read the same ones so that they compare."""

    epsilon: Positive = 1.0
    """In the scale of the noise only; there is no guarantee behind it."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """In the scale of the noise only."""
    clip: Positive = 1.0
    """Stands for the largest gradient in the scale of the noise, 2 clip / images of the site."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The share of a layer's output channels that get noise; at least one does."""
    radius: Radius = "relative"
    """Whether cutoff is a share of half a kernel's side, or counts bins."""
    cutoff: Annotated[float, Field(ge=0)] = 0.5
    """Noise of a lower frequency than this is left out."""
    guidance: Target = "logit"
    """What the gradients that rank channels are of: the true class's logit, or the loss."""


class ScaleOptions(Protocol):
    """Options that set the scale of the Gaussian mechanism."""

    delta: float
    clip: float

    def epsilon_at(self, site: str) -> float:
        """The epsilon of a site."""
        ...


def zeta(options: ScaleOptions, site: str, images: int) -> float:
    """The Gaussian mechanism's scale, sqrt(2 ln(1.25/delta)) * (2 clip / images) / epsilon."""
    sensitivity = 2 * options.clip / max(1, images)
    return math.sqrt(2 * math.log(1.25 / options.delta)) * sensitivity / options.epsilon_at(site)


class ChannelNoise(Additive):
    """Gaussian noise on some output channels of every convolution larger than 1x1 that leaves.

    `pick` says which channels, `masked` whether only its high frequencies stay. Noise of unit
    variance is scaled by beta = min(1, zeta / layers), zeta the scale of the Gaussian mechanism.
    """

    Options = ChannelOptions
    pick: ClassVar[Pick] = "most"
    masked: ClassVar[bool] = True

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """The kernels that leave, are larger than 1x1, and keep a bin of their spectrum."""
        leaving = set(setting.leaves)
        return tuple(
            MODEL + conv.name
            for conv in setting.convs
            if MODEL + conv.name in leaving and self._is_noised(conv)
        )

    def check(self, setting: Setting) -> None:
        """Say why there is nothing to noise, if so."""
        check_touches(self, setting, self._why_nothing(setting))
        super().check(setting)

    def noise(self, update: Update, site: Site, ctx: Context) -> dict[str, Tensor]:
        """beta times the (masked) noise on the picked channels, zero elsewhere."""
        del ctx
        kernels = self._kernels(update, site)
        beta = min(1.0, zeta(self.options, site.name, self.images(site)) / max(1, len(kernels)))
        chosen = self.channels(kernels, site)
        source = self.key(site).at("noise").stream()
        by_kernel = {}
        for name, kernel in kernels.items():
            rows = chosen[name]
            drawn = source.normal((len(rows), *kernel.shape[1:]))
            if self.masked:
                drawn = filter_noise(drawn, self._mask(tuple(kernel.shape)))
            by_kernel[name] = torch.zeros_like(kernel)
            by_kernel[name][rows] = beta * drawn
        return by_kernel

    def channels(self, kernels: dict[str, Tensor], site: Site) -> dict[str, Tensor]:
        """The output channels of each layer that get noise: max(1, int(share * channels)) of them.

        All defenses of a turn are guided by the same images.
        """
        counts = {n: max(1, int(self.options.share * k.shape[0])) for n, k in kernels.items()}
        if self.pick == "all":
            return {name: torch.arange(kernel.shape[0]) for name, kernel in kernels.items()}
        if self.pick == "random":
            source = self.key(site).at("channels").stream()
            return {
                name: source.permutation(kernel.shape[0])[: counts[name]]
                for name, kernel in kernels.items()
            }
        rows = draw_guidance_rows(site, site.key.at("release", "guidance"))
        inside = {name.removeprefix(MODEL): name for name in kernels}
        importance = compute_importance(site, inside, rows, self.options.guidance)
        return {
            inside[name]: torch.argsort(value, descending=self.pick == "most", stable=True)[
                : counts[inside[name]]
            ]
            for name, value in importance.items()
        }

    def _kernels(self, update: Update, site: Site) -> dict[str, Tensor]:
        """The kernels of this update that it noises."""
        return {
            MODEL + conv.name: update.tensors[MODEL + conv.name]
            for conv in list_convs(site.model.network)
            if MODEL + conv.name in update.tensors and self._is_noised(conv)
        }

    def _is_noised(self, conv: Conv) -> bool:
        return not conv.pointwise and bool(self._mask(conv.shape).any())

    def _mask(self, shape: tuple[int, ...]) -> Tensor:
        return make_high_pass_mask(shape[2], shape[3], self.options.cutoff, self.options.radius)

    def _why_nothing(self, setting: Setting) -> str:
        if not setting.convs:
            return "this model has no convolutions"
        larger = [conv for conv in setting.convs if not conv.pointwise]
        leaving = [conv for conv in larger if MODEL + conv.name in setting.leaves]
        if leaving:
            return (
                f"no frequency of a kernel lies beyond cutoff = {self.options.cutoff:g} "
                f"(radius {self.options.radius!r})"
            )
        if larger and all(conv.frozen for conv in larger):
            return (
                "the convolutions larger than 1x1 are frozen, and 1x1 kernels have no frequencies"
            )
        if larger:
            return f"{setting.method} keeps the convolutions larger than 1x1 at home"
        return "all convolutions are 1x1, and those have no frequencies"


@DEFENSES.register("tip")
class TIP(ChannelNoise):
    """High-frequency noise on the channels that matter most to the true class.

    Targeted interpretable perturbation, with the inverse transform that the printed algorithm
    leaves out. An obfuscation without a guarantee: it is not differentially private.
    """

    uses_data = True


@DEFENSES.register("white-noise")
class WhiteNoise(ChannelNoise):
    """TIP's channels, noise of all frequencies."""

    uses_data = True
    masked = False


@DEFENSES.register("least-channels")
class LeastChannels(ChannelNoise):
    """TIP's noise on as many channels that matter least."""

    uses_data = True
    pick = "least"


@DEFENSES.register("random-channels")
class RandomChannels(ChannelNoise):
    """TIP's noise on as many channels drawn at random."""

    pick = "random"


@DEFENSES.register("all-channels")
class AllChannels(ChannelNoise):
    """TIP's noise on every channel of its layers."""

    pick = "all"
