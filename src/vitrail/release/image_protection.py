"""How images are protected before they leave a site, and what may be promised of the result.

`local-dp` is formal for each image and its label; `metric` is formal with respect to the distance
between two images of one class; `paper` is noise without a promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vitrail.grid_noise import add_laplace_noise, add_noise, reserve_delta
from vitrail.local.sharing.share_filters import Box, make_box_mask
from vitrail.release.accounting import gaussian
from vitrail.release.accounting.metric_privacy import Distances, compute_epsilon_curve
from vitrail.release.accounting.promise import NO_GUARANTEE
from vitrail.release.accounting.randomized_response import randomize_labels
from vitrail.rng import Key, Stream

Mode = Literal["paper", "local-dp", "metric"]
_PART = 256  # images
COVERS = "the shared images only; model updates: separate lines"


@dataclass(frozen=True)
class NoiseBox:
    """A box in which the noise's deviation is multiplied by `factor`."""

    box: Box
    factor: float


@dataclass(frozen=True)
class Protection:
    """What is done to masked images in [0, 1].

    `sigma` is the deviation of the noise on a pixel for `paper` and `metric`; for `local-dp` it
    follows from (epsilon, delta) and images cut to the L2 norm `clip`, or means over `group`
    such images of one class. `fixed_masks` says that masks do not depend on the site's images,
    `class_masks` that each is made from all images of a class; with `epsilon_mask` those are
    (epsilon_mask, delta)-private for one image.
    """

    mode: Mode = "paper"
    sigma: float = 0.1
    epsilon: float = 8.0
    epsilon_label: float | None = None
    delta: float = 1e-5
    clip: float = 5.0
    group: int = 1
    norm: Literal["l2", "l1"] = "l2"
    regions: tuple[NoiseBox, ...] = ()
    fixed_masks: bool = False
    class_masks: bool = False
    epsilon_mask: float | None = None

    @property
    def deviation(self) -> float:
        """The deviation of the noise on every pixel, before regions."""
        if self.mode != "local-dp":
            return self.sigma
        return gaussian.compute_sigma(
            self.epsilon, reserve_delta(self.delta), 2 * self.clip / self.group
        )

    @property
    def formal(self) -> bool:
        """Whether all that leaves is covered by a proof, masks and labels included.

        Metric privacy compares images of one class, so that labels have nothing to tell.
        """
        if self.mode == "local-dp":
            masks = not self.class_masks or self.epsilon_mask is not None
            return masks and self.epsilon_label is not None
        return self.mode == "metric" and (self.fixed_masks or self.epsilon_mask is not None)

    @property
    def span(self) -> tuple[float, float]:
        """Values that a pixel cannot leave by honest noise (12 deviations; 60 for Laplace)."""
        most = max([1.0, *(region.factor for region in self.regions)])
        reach = (60 if self.norm == "l1" else 12) * most * self.deviation
        return -reach, 1 + reach


@dataclass(frozen=True)
class ProtectedImages:
    """What may leave: pixels [M, H, W, C], labels [M], and the ledger's line about them."""

    pixels: Tensor
    targets: Tensor
    line: dict[str, Any]


def protect(
    pixels: Tensor,
    labels: Tensor,
    classes: int,
    how: Protection,
    key: Key,
    distances: Distances | None = None,
) -> ProtectedImages:
    """Protect masked images [N, H, W, C] and their labels; `distances` are those in the data."""
    targets = labels
    if how.epsilon_label is not None:
        targets = randomize_labels(labels, classes, how.epsilon_label, key.at("labels"))
    if how.mode == "local-dp":
        pixels = clip_images(pixels, how.clip)
        if how.group > 1:
            pixels, targets = average_groups(pixels, targets, how.group, key.at("groups"))
    source = key.at("pixels").stream()
    more = make_noise_factors(how.regions, pixels.shape[1], pixels.shape[2])[..., None].double()
    # noise needs several times the memory of what it is added to
    parts = torch.split(pixels, _PART)
    noised = torch.cat([(more * _add_noise(p / more, how, source)).float() for p in parts])
    return ProtectedImages(noised, targets, _make_line(noised, targets, how, distances))


def clip_images(pixels: Tensor, clip: float) -> Tensor:
    """Images brought to an L2 norm of at most `clip`."""
    exact = pixels.double()  # in float32 a norm may end above the clip
    norms = torch.linalg.vector_norm(exact.flatten(1), dim=1).clamp_min(1e-12)
    scale: Tensor = (clip / norms).clamp(max=1.0)
    return exact * scale[:, None, None, None]


def average_groups(pixels: Tensor, targets: Tensor, group: int, key: Key) -> tuple[Tensor, Tensor]:
    """Means over `group` images with one (already randomized) label; what is left over stays."""
    order = key.stream().permutation(len(targets))
    means, labels = [pixels[:0]], [targets[:0]]
    for label in torch.unique(targets):
        members = order[targets[order] == label]
        whole = len(members) // group * group
        means.append(pixels[members[:whole]].reshape(-1, group, *pixels.shape[1:]).mean(1))
        labels.append(label.repeat(whole // group))
    return torch.cat(means), torch.cat(labels)


def make_noise_factors(regions: Sequence[NoiseBox], height: int, width: int) -> Tensor:
    """What the noise is multiplied by at each pixel, [H, W]; of overlapping boxes the largest."""
    factors = torch.ones(height, width)
    touched = torch.zeros(height, width, dtype=torch.bool)
    for region in regions:
        box = make_box_mask(region.box, height, width)
        fresh = torch.full_like(factors, region.factor)
        factors = torch.where(box, torch.where(touched, factors.maximum(fresh), fresh), factors)
        touched |= box
    return factors


def _add_noise(pixels: Tensor, how: Protection, source: Stream) -> Tensor:
    """With Gaussian noise, or Laplace noise of the same deviation where distances are l1."""
    add = add_noise if how.norm == "l2" else add_laplace_noise
    return add(pixels, how.deviation, source)


def _make_line(
    pixels: Tensor, targets: Tensor, how: Protection, distances: Distances | None
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "kind": "images",
        "images": len(targets),
        "bytes": pixels.nbytes + targets.nbytes,
        "mechanism": [how.mode],
        "sigma": how.deviation,
        "covers": COVERS,
        "guarantee": NO_GUARANTEE,
    }
    if how.regions:
        line["regions"] = max(region.factor for region in how.regions)
    if how.epsilon_label is not None:
        line["epsilon_label"] = how.epsilon_label
    if how.mode == "local-dp":
        line |= _describe_local_dp(how)
    elif how.mode == "metric":
        line |= _describe_metric_privacy(how, distances)
    return line


def _describe_local_dp(how: Protection) -> dict[str, Any]:
    """(eps_image + eps_label, delta) for one image with its label, whatever the others are."""
    label = how.epsilon_label
    remark: dict[str, Any] = {
        "clip": how.clip,
        "group": how.group,
        "epsilon_image": how.epsilon,
        "delta": how.delta,
        "adversary": "whoever sees the shared images and knows all other images of the site",
    }
    if how.class_masks and how.epsilon_mask is None:
        # One image moves the masks of all others, which its own budget does not cover.
        remark["guarantee"] = f"{NO_GUARANTEE} (masks were made from all images of a class)"
        return remark
    mask = how.epsilon_mask if how.class_masks and how.epsilon_mask is not None else 0.0
    if mask:
        remark |= {"epsilon_mask": mask, "delta": 2 * how.delta}
    remark["epsilon"] = how.epsilon + mask + (label or 0.0)
    remark["guarantee"] = f"formal: local DP{', labels not covered' if label is None else ''}"
    return remark


def _describe_metric_privacy(how: Protection, distances: Distances | None) -> dict[str, Any]:
    remark: dict[str, Any] = {
        "norm": how.norm,
        "delta": how.delta if how.norm == "l2" else 0.0,
        "curve": [
            list(point) for point in compute_epsilon_curve(how.deviation, how.delta, how.norm)
        ],
        "labels": "as they are" if how.epsilon_label is None else "randomized response",
    }
    if distances is not None:
        remark["distances"] = distances.epsilons(how.deviation, how.delta, how.norm)
    curved = "epsilon(distance) by the curve, for two images of one class; not one number"
    if how.fixed_masks:
        remark["masks"] = "from the model: what it learned of the images is in its own lines"
        remark["guarantee"] = f"formal: {curved}"
    elif how.epsilon_mask is not None:
        remark |= {"epsilon_mask": how.epsilon_mask, "delta_mask": how.delta}
        remark["guarantee"] = f"formal: {how.epsilon_mask:g} for the masks, and {curved}"
    else:
        remark["guarantee"] = f"{NO_GUARANTEE} (the masks were made from the images)"
    return remark


def describe_remark_guarantee(line: Mapping[str, Any]) -> str:
    """The guarantee of a line about a part of a release in words, with its numbers."""
    guarantee = str(line["guarantee"])
    if "epsilon" in line:
        return f"{guarantee}: epsilon {line['epsilon']:g}, delta {line['delta']:g}"
    if "curve" in line:
        points = ", ".join(
            f"{d:g}: {'none' if e is None else format(e, '.3g')}" for d, e in line["curve"]
        )
        near = line.get("distances", {})
        extra = "".join(
            f"; at the median {name} ({d:.3g}) {'none' if e is None else format(e, '.3g')}"
            for name, (d, e) in near.items()
            if d is not None
        )
        return f"{guarantee}. epsilon by {line['norm']} distance: {points}{extra}"
    return guarantee


def describe_remark(line: Mapping[str, Any]) -> str:
    """A line about a part of a release: how much of it, its noise, its guarantee."""
    parts = [f"{line['images']:,} images"] if "images" in line else []
    if "bytes" in line:
        parts.append(f"{int(line['bytes']):,} bytes")
    if line.get("sigma") is not None:
        parts.append(f"noise of deviation {line['sigma']:.3g}")
    if line.get("regions"):
        parts.append(f"up to {line['regions']:g} times as much in some regions")
    return ", ".join([*parts, describe_remark_guarantee(line)])
