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

from vitrail.audit.counterfactual.effects import remove_region
from vitrail.audit.counterfactual.overlap import compute_share_inside, mean_iou
from vitrail.audit.counterfactual.regions import find_strongest_unit
from vitrail.audit.finding import Finding
from vitrail.audit.site_view import SiteView, compute_activation_maps, compute_logits, log_odds
from vitrail.explain.evidence import Box

PICTURES = ("own", "covered", "other", "swapped")


@dataclass(frozen=True)
class ClassPrediction:
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
class FindingExample:
    """One finding in pictures, all in pixels of the run's images.

    `pictures` [C, H, W] in 0..1: the own image, the same with the region covered, an image of
    another class, the same with the region put in. `said` is what each model says of each.
    `overlap` is the mean intersection over union of the local and the shared model's boxes.
    """

    finding: Finding
    other_label: str
    region: Box | None
    pictures: Mapping[str, Tensor]
    said: Mapping[str, Mapping[str, ClassPrediction]]
    seen: Mapping[str, Attention]
    overlap: float | None


@torch.inference_mode()
def illustrate_finding(view: SiteView, finding: Finding) -> FindingExample:
    """The image in the middle of its class by what the region does to the site's own model."""
    label = view.classes.index(finding.label)
    rows = torch.tensor(finding.rows)
    chosen = view.pixels[rows]
    others = torch.from_numpy(np.flatnonzero(view.labels != label))
    partner = others[torch.linspace(0, len(others) - 1, len(rows)).long()]
    stacks = {
        "own": chosen,
        "covered": remove_region(view, chosen, label, finding.place),
        "other": view.pixels[partner],
        "swapped": finding.place.paste_into(view.pixels[partner], chosen, chosen),
    }
    features = {name: view.run_frozen_stages(images) for name, images in stacks.items()}
    local = {name: log_odds(compute_logits(view.local, z), label) for name, z in features.items()}
    effect = local["own"] - local["covered"] + local["swapped"] - local["other"]
    at = int(effect.argsort()[(len(effect) - 1) // 2])
    size = (chosen.shape[2], chosen.shape[3])
    seen = {
        n: a
        for n in view.models
        if (a := _find_attention(view, n, features["own"], finding, size, at))
    }
    boxes = finding.place.boxes
    return FindingExample(
        finding,
        view.classes[int(view.labels[int(partner[at])])],
        None if boxes is None else _to_box(boxes[at]),
        {name: stacks[name][at] for name in PICTURES},
        {name: _predict(view, features[name][at : at + 1], label) for name in PICTURES},
        seen,
        _compute_overlap(seen),
    )


def _predict(view: SiteView, z: Tensor, label: int) -> dict[str, ClassPrediction]:
    predictions = {}
    for name, model in view.models.items():
        chances = torch.softmax(compute_logits(model, z)[0].double(), 0)
        best = int(chances.argmax())
        predictions[name] = ClassPrediction(
            view.classes[best], float(chances[best]), float(chances[label])
        )
    return predictions


def _find_attention(
    view: SiteView, name: str, z: Tensor, finding: Finding, size: tuple[int, int], at: int
) -> Attention | None:
    """The strongest unit of the class; None where all of them are masked."""
    model = view.models[name]
    strongest = find_strongest_unit(model, z, view.classes.index(finding.label), size)
    if strongest is None:
        return None
    unit, boxes = strongest
    seen = compute_activation_maps(model, z)[:, unit]
    return Attention(
        unit,
        seen[at],
        _to_box(boxes[at]),
        tuple(_to_box(b) for b in boxes),
        compute_share_inside(seen, finding.place.boxes, size),
    )


def _compute_overlap(seen: Mapping[str, Attention]) -> float | None:
    if "local" not in seen or "shared" not in seen:
        return None
    one, two = (torch.tensor(seen[name].boxes) for name in ("local", "shared"))
    return mean_iou(one, two)


def _to_box(edges: Tensor) -> Box:
    x0, y0, x1, y1 = edges.tolist()
    return int(x0), int(y0), int(x1), int(y1)
