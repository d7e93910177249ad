"""A finding on one typical image: where each model looks, and what it says without the region.

MyTH's figures 4 and 5 show local, global and personal models on the same image side by side;
here the counterfactual images stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.desk import Desk, log_odds, logits, maps
from vitrail.audit.effects import without
from vitrail.audit.finding import Finding
from vitrail.audit.overlap import inside, mean_iou
from vitrail.audit.regions import strongest
from vitrail.explain.evidence import Box

PICTURES = ("own", "covered", "other", "swapped")


@dataclass(frozen=True)
class Said:
    """A prediction: the class, its probability, and the probability of the class in question."""

    predicted: str
    probability: float
    asked: float


@dataclass(frozen=True)
class Attention:
    """Where one model's strongest unit of the class looks, in the typical image and in all.

    `boxes` has one for each image of the finding; `inside` is the share of the unit's activation
    (above its least value) that lies in the suspected region, None where that is no place.
    """

    unit: int
    map: Tensor  # [h, w]
    box: Box
    boxes: tuple[Box, ...]
    inside: float | None


@dataclass(frozen=True)
class Look:
    """One finding in pictures, all in pixels of the run's images.

    `pictures` [C, H, W] in 0..1: the own image, the same with the region covered, an image of
    another class, the same with the region put in. `said` is what each model says of each.
    `overlap` is the mean intersection over union of the local and the shared model's boxes.
    """

    finding: Finding
    other_label: str
    region: Box | None
    pictures: Mapping[str, Tensor]
    said: Mapping[str, Mapping[str, Said]]
    seen: Mapping[str, Attention]
    overlap: float | None


@torch.inference_mode()
def look(desk: Desk, finding: Finding) -> Look:
    """The image in the middle of its class by what the region does to the site's own model."""
    label = desk.classes.index(finding.label)
    rows = torch.tensor(finding.rows)
    own = desk.pixels[rows]
    others = torch.from_numpy(np.flatnonzero(desk.labels != label))
    partner = others[torch.linspace(0, len(others) - 1, len(rows)).long()]
    stacks = {
        "own": own,
        "covered": without(desk, own, label, finding.place),
        "other": desk.pixels[partner],
        "swapped": finding.place.into(desk.pixels[partner], own, own),
    }
    found = {name: desk.begin(images) for name, images in stacks.items()}
    local = {name: log_odds(logits(desk.local, z), label) for name, z in found.items()}
    effect = local["own"] - local["covered"] + local["swapped"] - local["other"]
    at = int(effect.argsort()[(len(effect) - 1) // 2])
    size = (own.shape[2], own.shape[3])
    seen = {
        n: a for n in desk.models if (a := _attention(desk, n, found["own"], finding, size, at))
    }
    boxes = finding.place.boxes
    return Look(
        finding,
        desk.classes[int(desk.labels[int(partner[at])])],
        None if boxes is None else _box(boxes[at]),
        {name: stacks[name][at] for name in PICTURES},
        {name: _said(desk, found[name][at : at + 1], label) for name in PICTURES},
        seen,
        _overlap(seen),
    )


def _said(desk: Desk, z: Tensor, label: int) -> dict[str, Said]:
    found = {}
    for name, model in desk.models.items():
        chances = torch.softmax(logits(model, z)[0].double(), 0)
        best = int(chances.argmax())
        found[name] = Said(desk.classes[best], float(chances[best]), float(chances[label]))
    return found


def _attention(
    desk: Desk, name: str, z: Tensor, finding: Finding, size: tuple[int, int], at: int
) -> Attention | None:
    """The strongest unit of the class; None where all of them are masked."""
    model = desk.models[name]
    found = strongest(model, z, desk.classes.index(finding.label), size)
    if found is None:
        return None
    unit, boxes = found
    seen = maps(model, z)[:, unit]
    return Attention(
        unit,
        seen[at],
        _box(boxes[at]),
        tuple(_box(b) for b in boxes),
        inside(seen, finding.place.boxes, size),
    )


def _overlap(seen: Mapping[str, Attention]) -> float | None:
    if "local" not in seen or "shared" not in seen:
        return None
    one, two = (torch.tensor(seen[name].boxes) for name in ("local", "shared"))
    return mean_iou(one, two)


def _box(edges: Tensor) -> Box:
    x0, y0, x1, y1 = edges.tolist()
    return int(x0), int(y0), int(x1), int(y1)
