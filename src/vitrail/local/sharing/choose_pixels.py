"""What a site would share of its images: the pixels that speak most for their class.

Heatmaps are taken for the TRUE class of each image; the lowest ones of its pixels become zero
(FedXDS). Nothing leaves here: see `release.images` for what is done to the result before it does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.explain.attribution import Settings, attribute
from vitrail.grid_noise import add_noise
from vitrail.local.inputs import Rows
from vitrail.local.session import Site
from vitrail.local.sharing.share_filters import Box, find_forbidden_pixels
from vitrail.local.sharing.unshared import drop_withheld, find_withheld_pixels
from vitrail.rng import Key

# A gradient's sign says in which direction a pixel would help, not whether it does.
ABSOLUTE = ("gradient", "smoothgrad")
_GRAY = 128
_PART = 256  # images that are attributed at once


@dataclass(frozen=True)
class SharingChoice:
    """Which images, which of their pixels, and by what measure.

    `source` says what a mask is made from: each image, the mean heatmap of its class at this
    site, or the model alone (the heatmap of a gray image). `heat_noise` is noise on the heatmap
    before it is ranked, in units of its SD; `heat_sigma` the deviation of noise on the sum over a
    class of heatmaps that are brought to the length 1 first, so that what one image can change is
    known.
    """

    attribution: str = "lrp"
    removed: float = 0.8
    soft: bool = False
    source: Literal["image", "class", "model"] = "image"
    rank: Literal["auto", "signed", "absolute"] = "auto"
    fraction: float = 1.0
    heat_noise: float = 0.0
    heat_sigma: float = 0.0
    boxes: tuple[Box, ...] = ()
    detector: str | None = None


@dataclass(frozen=True)
class ChosenImages:
    """The images of one site that are to be shared, before any protection.

    `heat` and `mask` are [N, H, W], `pixels` [N, H, W, C] in [0, 1], masked.
    """

    rows: Rows
    heat: Tensor
    mask: Tensor
    pixels: Tensor
    labels: Tensor


def choose(site: Site, choice: SharingChoice, key: Key) -> ChosenImages:
    """Draw the images, attribute them to their own labels, and mask them."""
    shareable = drop_withheld(site.inputs, site.rows.train)
    rows = _sample(shareable, choice.fraction, key.at("sample"))
    images = site.inputs.images[rows]
    labels = torch.from_numpy(site.inputs.labels[rows])
    heat = compute_heatmaps(site, rows, choice, key)
    mask = make_masks(heat, choice.removed, choice.soft)
    mask = mask.masked_fill(find_forbidden_pixels(images, choice.boxes, choice.detector), 0.0)
    mask = mask.masked_fill(find_withheld_pixels(site.inputs, rows), 0.0)
    raw = torch.from_numpy(images.copy()).to(torch.float32) / 255
    return ChosenImages(rows, heat, mask, raw * mask[..., None], labels)


def compute_heatmaps(site: Site, rows: Rows, choice: SharingChoice, key: Key) -> Tensor:
    """What pixels are ranked by, [N, H, W]; larger is kept."""
    inputs, network = site.inputs, site.model.network
    settings = Settings(start="logit", key=key.at(choice.attribution))
    labels = torch.from_numpy(inputs.labels[rows])
    if choice.source == "model":
        classes = torch.unique(labels)
        gray = torch.full((len(classes), *inputs.images.shape[1:]), _GRAY, dtype=torch.uint8)
        heat = _to_ranking_values(
            attribute(
                choice.attribution,
                network,
                inputs.normalize(gray).to(inputs.device),
                classes.to(inputs.device),
                settings,
            ).cpu(),
            choice,
        )
        return _add_noise(heat, choice, key)[torch.searchsorted(classes, labels)]
    parts = [torch.empty(0, *inputs.images.shape[1:3])]
    for at in range(0, len(rows), _PART):
        part = replace(settings, key=settings.key.at("part", at))
        x = inputs.normalize(inputs.images[rows[at : at + _PART]]).to(inputs.device)
        target = labels[at : at + _PART].to(inputs.device)
        parts.append(attribute(choice.attribution, network, x, target, part).cpu())
    heat = torch.cat(parts)
    heat = _add_noise(_to_ranking_values(heat, choice), choice, key)
    if choice.source == "class":
        heat = scale_to_unit_length(heat) if choice.heat_sigma else heat
        for label in torch.unique(labels).tolist():
            members = labels == label
            heat[members] = _pool_class(heat[members], choice.heat_sigma, key.at("class", label))
    return heat


def _pool_class(heat: Tensor, sigma: float, key: Key) -> Tensor:
    """The mean over a class; with noise the sum, of which it is known what one image can move."""
    if not sigma:
        return heat.mean(0)
    return add_noise(heat.double().sum(0), sigma, key.stream()).float()


def scale_to_unit_length(heat: Tensor) -> Tensor:
    """Each map divided by its L2 norm; one that is no number says nothing."""
    heat = heat.double().nan_to_num(0.0, 0.0, 0.0)
    norms: Tensor = torch.linalg.vector_norm(heat.flatten(1), dim=1).clamp_min(1e-300)
    return (heat / norms[:, None, None]).to(torch.float32)


def _to_ranking_values(heat: Tensor, choice: SharingChoice) -> Tensor:
    """Signed where the sign says whether a pixel speaks for the class, else the size alone."""
    absolute = choice.rank == "absolute" or (
        choice.rank == "auto" and choice.attribution in ABSOLUTE
    )
    return heat.abs() if absolute else heat


def _add_noise(heat: Tensor, choice: SharingChoice, key: Key) -> Tensor:
    if not choice.heat_noise or not heat.numel():
        return heat
    spread = heat.flatten(1).std(1)[:, None, None]
    noise = key.at("heat").stream().normal(heat.shape)
    return heat + choice.heat_noise * spread * noise


def make_masks(heat: Tensor, removed: float, soft: bool = False) -> Tensor:
    """Weights [N, H, W] from 0 to 1 that leave the top pixels of each heatmap, and no others.

    Binary ones are 0 or 1; soft ones fall off with the heat, from 1 for the strongest pixel. Of
    equal pixels those read first are kept.
    """
    if not 0 < removed < 1:
        raise ConfigError(
            f"a share of {removed:g} of the pixels cannot be removed",
            where="method.removed",
            hint="Use a number between 0 (nothing is hidden) and 1 (nothing is left), such as 0.8.",
        )
    count, height, width = heat.shape
    keep = max(1, round((1 - removed) * height * width))
    flat = heat.flatten(1).nan_to_num(-torch.inf)
    order = flat.argsort(dim=1, descending=True, stable=True)
    masks = torch.zeros(count, height * width)
    masks.scatter_(1, order[:, :keep], 1.0)
    if soft and count:
        top = flat.gather(1, order[:, :1])
        edge = flat.gather(1, order[:, keep - 1 : keep])
        masks = masks * ((flat - edge) / (top - edge).clamp_min(1e-12)).clamp(0, 1).nan_to_num(0)
        masks.scatter_(1, order[:, :1], 1.0)
    return masks.view(count, height, width)


def _sample(rows: Rows, fraction: float, key: Key) -> Rows:
    """A share of the rows, at least one, in their order."""
    count = max(1, round(fraction * len(rows)))
    if count >= len(rows):
        return rows
    picks = key.numpy().choice(len(rows), count, replace=False)
    picks.sort()
    return rows[picks]
