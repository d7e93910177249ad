"""What a region does to a prediction: put into images of other classes, or covered in its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.change import cover, matched
from vitrail.audit.contrast import Contrast
from vitrail.audit.desk import Desk, log_odds, logits, peaks
from vitrail.audit.regions import Region, at_random, suspected
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
class Covered:
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
    donors: Tensor  # positions among the desk's images
    effect: Effect
    random: tuple[Effect, ...] = ()
    rises: dict[str, Tensor] = field(default_factory=dict)
    drops: dict[str, Tensor] = field(default_factory=dict)
    covered: dict[str, Covered] = field(default_factory=dict)


def probe(desk: Desk, contrast: Contrast, key: Key) -> Probe | None:
    """Try the region that a contrast names; None where there are too few images to tell."""
    label = contrast.label
    donors = desk.of(label, DONORS)
    others = torch.from_numpy(np.flatnonzero(desk.labels != label))
    if len(donors) < _FEWEST or len(others) < _FEWEST:
        return None
    draw = key.at("recipients").numpy()
    chosen = others[torch.from_numpy(draw.integers(0, len(others), len(donors) * EACH))]
    images, pool = desk.pixels[chosen], desk.pixels[donors]
    sources = pool.repeat_interleave(EACH, 0)
    regions = [suspected(desk, contrast, pool)]
    if regions[0].boxes is not None:
        size = (images.shape[2], images.shape[3])
        regions += at_random(regions[0].boxes, size, RANDOM, key.at("regions").numpy())
    odds, hits = partial(log_odds, label=label), partial(_hits, label=label)
    before, units = _outcome(desk, images)
    found, rises = [], []
    for region in regions:
        after, now = _outcome(desk, region.into(images, sources, pool))
        effect = Effect(
            region,
            {n: float((odds(after[n]) - odds(before[n])).mean()) for n in before},
            {n: float((hits(after[n]) - hits(before[n])).mean()) for n in before},
        )
        found.append(effect)
        rises.append(_change(units, now))
    left, drops = _covered(desk, pool, label, regions[0])
    return Probe(label, donors, found[0], tuple(found[1:]), rises[0], drops, left)


def _outcome(desk: Desk, images: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Every model's logits, and what each unit of the site's two models finds in each image."""
    z = desk.begin(images)
    found = {name: logits(model, z) for name, model in desk.models.items()}
    return found, {"local": peaks(desk.local, z), "shared": peaks(desk.shared, z)}


def _change(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: (after[name] - before[name]).mean(0) for name in before}


def _hits(found: Tensor, label: int) -> Tensor:
    return (found.argmax(1) == label).double()


def without(desk: Desk, own: Tensor, label: int, region: Region) -> Tensor:
    """A class's own images with the region blurred over, or with the shift undone."""
    if region.boxes is not None:
        return cover(own, region.boxes, "blur")
    return matched(own, desk.pixels[torch.from_numpy(desk.labels != label)])


def _covered(
    desk: Desk, own: Tensor, label: int, region: Region
) -> tuple[dict[str, Covered], dict[str, Tensor]]:
    """What is left of predictions and of units when the region is blurred over, or undone."""
    before, units = _outcome(desk, own)
    after, now = _outcome(desk, without(desk, own, label, region))
    odds, hits = partial(log_odds, label=label), partial(_hits, label=label)
    found = {
        name: Covered(
            float(hits(before[name]).mean()),
            float(hits(after[name]).mean()),
            float((odds(before[name]) - odds(after[name])).mean()),
        )
        for name in before
    }
    return found, _change(now, units)
