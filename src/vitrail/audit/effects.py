"""What a region does to a prediction: put into images of other classes, or covered in its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.change import cover, framed, matched
from vitrail.audit.contrast import Contrast
from vitrail.audit.desk import Desk, log_odds, logits
from vitrail.audit.regions import FRAME, Region, at_random, candidates, suspected
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
class Probe:
    """One class at one site: every candidate's effect, and that of random regions."""

    label: int
    donors: Tensor  # positions among the desk's images
    effects: list[Effect] = field(default_factory=list)
    random: list[Effect] = field(default_factory=list)


def probe(desk: Desk, label: int, key: Key, contrast: Contrast | None = None) -> Probe | None:
    """Try the region that a contrast names, else every region the models look at.

    None where there are too few images to tell.
    """
    donors = desk.of(label, DONORS)
    others = torch.from_numpy(np.flatnonzero(desk.labels != label))
    if len(donors) < _FEWEST or len(others) < _FEWEST:
        return None
    draw = key.at("recipients").numpy()
    chosen = others[torch.from_numpy(draw.integers(0, len(others), len(donors) * EACH))]
    images, pool = desk.pixels[chosen], desk.pixels[donors]
    sources = pool.repeat_interleave(EACH, 0)
    regions = (
        candidates(desk, pool, label) if contrast is None else [suspected(desk, contrast, pool)]
    )
    like = next((r.boxes for r in regions if r.boxes is not None), None)
    if like is not None:
        size = (images.shape[2], images.shape[3])
        regions += at_random(like, size, RANDOM, key.at("regions").numpy())
    odds, hits = partial(log_odds, label=label), partial(_hits, label=label)
    before = _outcome(desk, images)
    found = Probe(label, donors)
    for region in regions:
        after = _outcome(desk, region.into(images, sources, pool))
        effect = Effect(
            region,
            {n: float((odds(after[n]) - odds(before[n])).mean()) for n in before},
            {n: float((hits(after[n]) - hits(before[n])).mean()) for n in before},
        )
        (found.random if region.kind == "random" else found.effects).append(effect)
    return found


def _outcome(desk: Desk, images: Tensor) -> dict[str, Tensor]:
    z = desk.begin(images)
    return {name: logits(model, z) for name, model in desk.models.items()}


def _hits(found: Tensor, label: int) -> Tensor:
    return (found.argmax(1) == label).double()


def without(desk: Desk, own: Tensor, label: int, region: Region) -> Tensor:
    """A class's own images with the region blurred over, or with the shift undone."""
    if region.boxes is not None:
        return cover(own, region.boxes, "blur")
    if region.kind == "frame":
        return framed(own, FRAME)
    return matched(own, desk.pixels[torch.from_numpy(desk.labels != label)])


@dataclass(frozen=True)
class Covered:
    """A class's own images with the region as it is, and without it: accuracy and log-odds."""

    accuracy: float
    without: float
    drop: float


def covered(desk: Desk, found: Probe, region: Region) -> dict[str, Covered]:
    """What is left of each model's predictions when the region is blurred over, or undone."""
    own = desk.pixels[found.donors]
    changed = without(desk, own, found.label, region)
    before, after = _outcome(desk, own), _outcome(desk, changed)
    odds, hits = partial(log_odds, label=found.label), partial(_hits, label=found.label)
    return {
        name: Covered(
            float(hits(before[name]).mean()),
            float(hits(after[name]).mean()),
            float((odds(before[name]) - odds(after[name])).mean()),
        )
        for name in before
    }
