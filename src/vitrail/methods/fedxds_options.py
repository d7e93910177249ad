"""The options of FedXDS: what is shared, how it is protected, and how it is used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from vitrail.config.schema import Count, NonNegative, Positive, Section, Share
from vitrail.explain.attribution import ATTRIBUTIONS
from vitrail.grid_noise import reserve_delta
from vitrail.local.sharing.choose_pixels import SharingChoice
from vitrail.local.sharing.share_filters import DETECTORS, EMBEDDINGS
from vitrail.methods.base.method import Options
from vitrail.release.accounting import gaussian
from vitrail.release.image_protection import NoiseBox, Protection

Corners = tuple[Share, Share, Share, Share]
_EPSILON_LABEL = 2.0


class NoiseRegion(Section):
    """A box [x0, y0, x1, y1], as shares of width and height, with `factor` times the noise."""

    box: Corners
    factor: Positive


class XdsOptions(Options):
    """Keys of `[method]`; docs/how-to/share-images.md goes through them."""

    warmup: Annotated[int, Field(ge=0)] | None = None
    """Rounds of FedAvg before sharing; left out: 10, or a third of a shorter run."""
    after: Literal["continue", "restart"] = "continue"
    """Go on with the model of the warm-up, or start anew."""
    attribution: str = "lrp"
    """What finds the pixels: lrp, gradient, smoothgrad, integrated-gradients, ..."""
    removed: float = 0.8
    """The share of an image's pixels that is removed."""
    mask: Literal["binary", "soft"] = "binary"
    """Kept pixels as they are, or weighted by their heat."""
    mask_from: Literal["image", "class", "model"] | None = None
    """What masks are made from; left out: model for metric, else image."""
    rank: Literal["auto", "signed", "absolute"] = "auto"
    """How heat is ranked; auto: by size for gradients, else signed."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of its images that a site shares."""
    heat_noise: NonNegative = 0.0
    """Noise on heatmaps before they are ranked, in units of their deviation."""
    heat_epsilon: Positive | None = None
    """The budget of a class's heatmap, with noise that keeps it; for mask_from = "class"."""
    boxes: tuple[Corners, ...] = ()
    """Boxes [x0, y0, x1, y1], as shares of width and height, that are always zeroed."""
    detector: str | None = None
    """A function of your own that finds pixels to be zeroed always."""
    protection: Literal["paper", "local-dp", "metric"] = "paper"
    """Noise without a promise, local differential privacy, or metric privacy."""
    sigma: NonNegative = 0.1
    """The noise's deviation on pixels in [0, 1], for paper and metric."""
    epsilon: Positive = 8.0
    """The budget of an image, for local-dp."""
    epsilon_label: Positive | None = None
    """The budget of a label; left out: 2 for local-dp, else labels leave as they are."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The delta of both formal modes."""
    clip: Positive = 5.0
    """The largest L2 norm of a masked image, for local-dp."""
    group: Count = 1
    """Share means over so many images of a class, for local-dp."""
    budgets: dict[str, Positive] = {}
    """Another epsilon for some sites, by name, for local-dp."""
    norm: Literal["l2", "l1"] = "l2"
    """The distance of metric privacy: Gaussian or Laplace noise."""
    embedding: str | None = None
    """A function of your own in which nearest neighbors are looked for, for metric."""
    regions: tuple[NoiseRegion, ...] = ()
    """Boxes with more or less noise."""
    weight: Positive = 1.0
    """The weight of the shared batch's loss."""
    statistics: bool = False
    """Whether BatchNorm's running statistics see shared images."""

    @field_validator("removed")
    @classmethod
    def _check_removed(cls, removed: float) -> float:
        if not 0 < removed < 1:
            raise ValueError(
                "removed is the share of pixels that is hidden: at 0 whole images would leave, at "
                "1 nothing would. Use a number between them, such as 0.8"
            )
        return removed

    @model_validator(mode="after")
    def _check_fits(self) -> XdsOptions:
        ATTRIBUTIONS[self.attribution]
        for registry, name in ((DETECTORS, self.detector), (EMBEDDINGS, self.embedding)):
            if name is not None:
                registry[name]
        formal = self.protection != "paper"
        if self.protection != "local-dp" and (self.group > 1 or self.budgets):
            raise ValueError('group and budgets need protection = "local-dp"')
        if self.protection != "metric" and (self.norm != "l2" or self.embedding):
            raise ValueError('norm and embedding need protection = "metric"')
        if self.protection == "metric" and (self.detector or self.source == "image"):
            raise ValueError(
                "metric privacy needs masks that do not depend on the image: leave out detector, "
                'and use mask_from = "model" (or "class", which is formal with heat_epsilon only)'
            )
        if self.heat_epsilon is not None and (self.source != "class" or self.heat_noise):
            raise ValueError(
                'heat_epsilon is the budget of a class\'s heatmap: use mask_from = "class", and '
                "leave out heat_noise"
            )
        unused = self._list_unused()
        if unused:
            name, needs = unused[0]
            raise ValueError(f"{name} has no effect with protection = {self.protection!r}: {needs}")
        if self.protection == "metric" and not self.sigma:
            raise ValueError("metric privacy needs noise: raise sigma above 0")
        if formal and any(region.factor < 1 for region in self.regions):
            raise ValueError("less noise in a region would void the guarantee: use factors from 1")
        return self

    def _list_unused(self) -> list[tuple[str, str]]:
        """Keys that are not as they come and that the protection does not look at: whoever sets a
        budget believes in it."""
        formal = self.protection != "paper"
        local = 'use protection = "local-dp"'
        needs = {
            "epsilon": (self.protection == "local-dp", local),
            "clip": (self.protection == "local-dp", local),
            "heat_epsilon": (formal, 'use "local-dp" or "metric", or heat_noise'),
            "delta": (formal, 'use "local-dp" or "metric"'),
            "sigma": (self.protection != "local-dp", "its noise follows from epsilon and clip"),
        }
        fields = type(self).model_fields
        return [
            (name, advice)
            for name, (used, advice) in needs.items()
            if not used and getattr(self, name) != fields[name].default
        ]

    @property
    def source(self) -> Literal["image", "class", "model"]:
        """What masks are made from."""
        if self.mask_from is not None:
            return self.mask_from
        return "model" if self.protection == "metric" else "image"

    @property
    def heat_sigma(self) -> float:
        """The noise on the sum of a class's heatmaps of length 1, of which one image moves 2."""
        if self.heat_epsilon is None:
            return 0.0
        return gaussian.compute_sigma(self.heat_epsilon, reserve_delta(self.delta), 2.0)

    def choice(self) -> SharingChoice:
        """Which images and pixels."""
        return SharingChoice(
            attribution=self.attribution,
            removed=self.removed,
            soft=self.mask == "soft",
            source=self.source,
            rank=self.rank,
            fraction=self.fraction,
            heat_noise=self.heat_noise,
            heat_sigma=self.heat_sigma,
            boxes=self.boxes,
            detector=self.detector,
        )

    def make_protection(self, site: str | None) -> Protection:
        """What is done to them at a site; None stands for a site without a budget of its own."""
        label = self.epsilon_label
        if label is None and self.protection == "local-dp":
            label = _EPSILON_LABEL
        return Protection(
            mode=self.protection,
            sigma=self.sigma,
            epsilon=self.epsilon if site is None else self.budgets.get(site, self.epsilon),
            epsilon_label=label,
            delta=self.delta,
            clip=self.clip,
            group=self.group,
            norm=self.norm,
            regions=tuple(NoiseBox(region.box, region.factor) for region in self.regions),
            fixed_masks=self.source == "model",
            class_masks=self.source == "class",
            epsilon_mask=self.heat_epsilon,
        )
