"""Prototype by prototype: which of the shared model's look at the suspected place, and how far
each is from what the site's own model has.

Slots of two models need not mean the same, so a prototype is compared with the nearest one of its
class: by their vectors where both models see patches alike, else by their activation maps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vitrail.audit.counterfactual.effects import Probe
from vitrail.audit.counterfactual.overlap import compute_share_inside, mean_iou
from vitrail.audit.site_view import (
    SiteView,
    compute_activation_maps,
    find_live_units,
    has_parts,
    require_part_head,
)
from vitrail.explain.boxes import find_boxes
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.runs.deployed import DeployedModel

_TIMES = 3.0  # beyond what the place does to prototypes of other classes


@dataclass(frozen=True)
class UnitEvidence:
    """One prototype of a class in the shared model, seen from one site.

    `rise` is the mean gain of its activation when the place is put into images of other
    classes, `drop` the mean loss when it is covered in own ones; `own_rise` is the gain of the
    prototype of that number in the site's own model, which is what the site brings into the
    mean. `named` says that either is far beyond what the place does to other prototypes: a mean
    of sites dilutes what one of them learned. `inside` is the share of its
    activation in the place; `distance` and `overlap` (of the boxes) compare it with the nearest
    prototype of the site's own model, by `vectors` or by `maps` (1 minus their correlation).
    `dead` ones are farther from every patch of the class's images than patches are from each
    other: they look nowhere, and are never named. `is_point` tells
    prototypes, which can be masked and mixed, from subspaces.
    """

    unit: int
    named: bool
    rise: float
    own_rise: float
    drop: float
    inside: float | None
    distance: float | None
    by: Literal["vectors", "maps"]
    overlap: float | None
    dead: bool = False
    is_point: bool = True

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return asdict(self)


@torch.inference_mode()
def collect_unit_evidence(view: SiteView, probe: Probe) -> tuple[UnitEvidence, ...]:
    """Every prototype in use of the probed class; none where a model has no parts."""
    if not has_parts(view.shared):
        return ()
    head = require_part_head(view.shared)
    of_class = (head.owner == probe.label) & head.alive()
    others = (head.owner != probe.label) & head.alive()
    z = view.run_frozen_stages(view.pixels[probe.donors])
    live = find_live_units(view.shared, z)
    excited = [find_excited_units(rises, of_class, others) for rises in probe.rises.values()]
    named = torch.stack(excited).any(0) & live
    seen = compute_activation_maps(view.shared, z)
    near = _find_nearest_units(view, z, probe.label)
    size = (view.pixels.shape[2], view.pixels.shape[3])
    listed = []
    for unit in torch.nonzero(of_class)[:, 0].tolist():
        distance, overlap = None, None
        if unit in near.at:
            distance, other = near.at[unit]
            overlap = mean_iou(find_boxes(seen[:, unit], *size), find_boxes(other, *size))
        listed.append(
            UnitEvidence(
                unit,
                bool(named[unit]),
                float(probe.rises["shared"][unit]),
                float(probe.rises["local"][unit]),
                float(probe.drops["shared"][unit]),
                compute_share_inside(seen[:, unit], probe.effect.region.boxes, size)
                if live[unit]
                else None,
                distance,
                near.by,
                overlap if live[unit] else None,
                not bool(live[unit]),
                isinstance(head, ProtoHead),
            )
        )
    return tuple(listed)


def find_excited_units(rises: Tensor, of_class: Tensor, others: Tensor) -> Tensor:
    """Which units of a class a place excites: three times as much as any unit of another class,
    and at least a third as much as the most excited one of the class; [units] of bool."""
    most = rises[of_class].max() if bool(of_class.any()) else rises.new_zeros(())
    usual = rises[others].max().clamp_min(0) if bool(others.any()) else rises.new_zeros(())
    return of_class & (rises > _TIMES * usual) & (rises > 0) & (rises >= most / _TIMES)


@dataclass(frozen=True)
class _NearestUnits:
    """For each shared unit how far the nearest local one is, and that one's maps [N, h, w]."""

    by: Literal["vectors", "maps"]
    at: dict[int, tuple[float, Tensor]]


def _find_nearest_units(view: SiteView, z: Tensor, label: int) -> _NearestUnits:
    one, two = require_part_head(view.shared), require_part_head(view.local)
    units = torch.nonzero((one.owner == label) & one.alive())[:, 0]
    local_units = torch.nonzero((two.owner == label) & two.alive())[:, 0]
    if not len(units) or not len(local_units):
        return _NearestUnits("maps", {})
    other = compute_activation_maps(view.local, z)[:, local_units]
    by: Literal["vectors", "maps"] = "maps"
    if (
        isinstance(one, ProtoHead)
        and isinstance(two, ProtoHead)
        and has_same_latent_space(view.shared, view.local)
    ):
        by = "vectors"
        far = torch.cdist(one.vectors[units].double(), two.vectors[local_units].double()).square()
    else:
        far = 1 - correlation(compute_activation_maps(view.shared, z)[:, units], other)
    least, at = far.min(1)
    return _NearestUnits(
        by,
        {
            unit: (float(d), other[:, int(a)])
            for unit, d, a in zip(units.tolist(), least, at, strict=True)
        },
    )


def has_same_latent_space(one: DeployedModel, two: DeployedModel) -> bool:
    """Whether two models see patches in one latent space: equal up to their heads."""
    first, second = (_get_body_state(model) for model in (one, two))
    same = (torch.equal(tensor, second[name]) for name, tensor in first.items())
    return first.keys() == second.keys() and all(same)


def _get_body_state(model: DeployedModel) -> dict[str, Tensor]:
    state = model.network.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith("head.")}


def correlation(one: Tensor, two: Tensor) -> Tensor:
    """Of each map in [N, a, h, w] with each in [N, b, h, w], over images and positions, [a, b].

    A map that is the same everywhere is correlated with nothing.
    """

    def standard(maps: Tensor) -> Tensor:
        flat = maps.transpose(0, 1).flatten(1).double()
        flat = flat - flat.mean(1, keepdim=True)
        length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        return flat / length.clamp_min(1e-12)

    correlations: Tensor = standard(one) @ standard(two).T
    return correlations
