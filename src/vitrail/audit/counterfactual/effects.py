"""What a region does to a prediction: put into images of other classes, or covered in its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.counterfactual.covering import cover, match_colors
from vitrail.audit.counterfactual.regions import (
    Region,
    draw_random_regions,
    locate_suspected_region,
)
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.site_view import (
    SiteView,
    compute_logits,
    compute_peak_activations,
    has_parts,
    log_odds,
)
from vitrail.rng import Key

DONORS, EACH, RANDOM = 12, 2, 4
_FEWEST = 3


@dataclass(frozen=True)
class Effect:
    """What one region does, by model name: the mean change of the class's log-odds when it is
    put into images of other classes, and those images' gain of predictions for the class."""

    region: Region
    swapped: dict[str, float]
    flipped: dict[str, float]


@dataclass(frozen=True)
class CoveringEffect:
    """A class's own images with the region as it is, and without it: accuracy and log-odds."""

    accuracy: float
    without: float
    drop: float


@dataclass(frozen=True)
class Probe:
    """One class at one site: what the suspected region does, and what random regions do.

    `rises` and `drops` [units] are mean changes of what units find in images of other classes
    with the region put in, and in own images with it covered, by model.
    """

    label: int
    donors: Tensor  # positions among the view's images
    effect: Effect
    random: tuple[Effect, ...] = ()
    rises: dict[str, Tensor] = field(default_factory=dict)
    drops: dict[str, Tensor] = field(default_factory=dict)
    covered: dict[str, CoveringEffect] = field(default_factory=dict)


def probe(view: SiteView, label: int, unit: Unit, key: Key) -> Probe | None:
    """Try the region that a unit names for a class; None where too few images are there to tell."""
    donors = view.select_class(label, DONORS)
    if len(donors) < _FEWEST or int((view.labels != label).sum()) < _FEWEST:
        return None
    region = locate_suspected_region(view, label, unit, view.pixels[donors])
    return measure_region(view, label, region, key)


def measure_region(view: SiteView, label: int, region: Region, key: Key) -> Probe | None:
    """What a region does to every model of a view; its boxes are those of the class's donors."""
    donors = view.select_class(label, DONORS)
    others = torch.from_numpy(np.flatnonzero(view.labels != label))
    if len(donors) < _FEWEST or len(others) < _FEWEST:
        return None
    draw = key.at("recipients").numpy()
    chosen = others[torch.from_numpy(draw.integers(0, len(others), len(donors) * EACH))]
    images, pool = view.pixels[chosen], view.pixels[donors]
    sources = pool.repeat_interleave(EACH, 0)
    regions = [region]
    if region.boxes is not None:
        size = (images.shape[2], images.shape[3])
        regions += draw_random_regions(region.boxes, size, RANDOM, key.at("regions").numpy())
    odds, hits = partial(log_odds, label=label), partial(_compute_hits, label=label)
    before, units = _compute_outputs(view, images)
    effects, rises = [], []
    for one in regions:
        after, now = _compute_outputs(view, one.paste_into(images, sources, pool))
        effect = Effect(
            one,
            {n: float((odds(after[n]) - odds(before[n])).mean()) for n in before},
            {n: float((hits(after[n]) - hits(before[n])).mean()) for n in before},
        )
        effects.append(effect)
        rises.append(_compute_mean_change(units, now))
    left, drops = _measure_covering(view, pool, label, region)
    return Probe(label, donors, effects[0], tuple(effects[1:]), rises[0], drops, left)


def _compute_outputs(view: SiteView, images: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Every model's logits, and what each unit of the site's two models finds in each image."""
    z = view.run_frozen_stages(images)
    logits = {name: compute_logits(model, z) for name, model in view.models.items()}
    parts = {"local": view.local, "shared": view.shared} if has_parts(view.shared) else {}
    return logits, {name: compute_peak_activations(model, z) for name, model in parts.items()}


def _compute_mean_change(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: (after[name] - before[name]).mean(0) for name in before}


def _compute_hits(logits: Tensor, label: int) -> Tensor:
    return (logits.argmax(1) == label).double()


def remove_region(view: SiteView, images: Tensor, label: int, region: Region) -> Tensor:
    """A class's own images with the region blurred over, or with the shift undone."""
    if region.boxes is not None:
        return cover(images, region.boxes, "blur")
    return match_colors(images, view.pixels[torch.from_numpy(view.labels != label)])


def _measure_covering(
    view: SiteView, images: Tensor, label: int, region: Region
) -> tuple[dict[str, CoveringEffect], dict[str, Tensor]]:
    """What is left of predictions and of units when the region is blurred over, or undone."""
    before, units = _compute_outputs(view, images)
    after, now = _compute_outputs(view, remove_region(view, images, label, region))
    odds, hits = partial(log_odds, label=label), partial(_compute_hits, label=label)
    effects = {
        name: CoveringEffect(
            float(hits(before[name]).mean()),
            float(hits(after[name]).mean()),
            float((odds(before[name]) - odds(after[name])).mean()),
        )
        for name in before
    }
    return effects, _compute_mean_change(now, units)
